#!/bin/bash
# Runs the SLURM script of docs/how-to/workers.md on a cluster of two nodes on this machine, as root:
#
#     bash benchmarks/slurm.sh
#
# It needs Debian's slurmctld, slurmd, slurm-client and munge; nothing has to be set up or running. The job is queued
# again after its first checkpoint, then ended by SLURM's TERM before its time limit and queued again until it is done.
# Its model has to be that of one process, byte for byte. All runs in namespaces of its own, so everything ends with it.
set -eu
[ "${INSIDE:-}" ] || INSIDE=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc bash "$0" "$@"
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 work SLURM_CONF
work=$(mktemp -d)
SLURM_CONF=$work/slurm.conf
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
TRAIN=(--dataset digits --model graphsage --hidden 512 512 --sub-gcns 4 --epochs "${EPOCHS:-5200}" --local-steps 10
    --set optimizer_state=carry --evaluate-every 20 --checkpoint-every 5)

configure() {
    ip link set lo up
    ip link add name hosts type bridge # SLURM looks up no address on a machine that has none but loopback's
    ip address add 10.86.53.1/24 dev hosts
    ip link set hosts up
    printf '%s\n' "127.0.0.1 localhost" "10.86.53.1 n1 n2 $(hostname)" > "$work/hosts"
    mount --bind "$work/hosts" /etc/hosts
    mkdir -m 700 "$work/munge" "$work/state" "$work/n1" "$work/n2"
    head -c 1024 /dev/urandom > "$work/munge/key"
    chmod 600 "$work/munge/key"
    cat > "$work/slurm.conf" <<END
ClusterName=small
SlurmctldHost=$(hostname)(10.86.53.1)
AuthInfo=socket=$work/munge.socket,cred_expire=5
SlurmUser=root
SlurmctldParameters=node_reg_mem_percent=1
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/%n.log
NodeName=n1 NodeHostname=$(hostname) NodeAddr=10.86.53.1 Port=17001 CPUs=2 Gres=gpu:1
NodeName=n2 NodeHostname=$(hostname) NodeAddr=10.86.53.1 Port=17002 CPUs=2 Gres=gpu:1
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE
END
    echo "Name=gpu File=/dev/null" > "$work/gres.conf" # SLURM counts one GPU on each node; the ranks train on CPUs
}

start() {
    munged --force --key-file="$work/munge/key" --socket="$work/munge.socket" --pid-file="$work/munge/pid" \
        --log-file="$work/munge/log" --seed-file="$work/munge/seed"
    slurmctld
    slurmd -N n1
    slurmd -N n2
    until [ "$(sinfo --noheader --format %T --states idle)" ]; do sleep 0.2; done
}

state() { scontrol show job "$1" | grep -oP "$2=\K\S+" | head -n 1; }

newest() { ls "$work/run/checkpoints" 2> /dev/null | grep '^round-' | tail -n 1; }

ended() { [[ " COMPLETED FAILED TIMEOUT NODE_FAIL " == *" $(state "$job" JobState) "* ]]; }

configure
start
sed '1,/^## SLURM/d' docs/how-to/workers.md | sed '1,/^```bash/d; /^```$/,$d' | tee "$work/ranks.sh"
job=$(sbatch --parsable --nodes=2 --cpus-per-task=1 --gpus-per-node=1 --time=2 --signal=TERM@20 \
    --output="$work/job.log" "$work/ranks.sh" -m gistgnn train "${TRAIN[@]}" --store sharded --out "$work/run" --resume)
until [ "$(newest)" ] || ended; do sleep 0.5; done
while true; do
    ! ended || echo "start $(state "$job" Restarts): $(state "$job" JobState) after $(state "$job" RunTime), $(newest)"
    [ "$(state "$job" JobState)" != COMPLETED ] || break
    [ "$(state "$job" Restarts)" -lt 9 ] || { cat "$work/job.log"; exit 1; }
    echo "scontrol requeue, last checkpoint $(newest)"
    scontrol requeue "$job"
    until [ "$(state "$job" JobState)" = RUNNING ]; do sleep 0.5; done
    until ended; do sleep 0.5; done
done
cat "$work/job.log"
python -m gistgnn train "${TRAIN[@]}" --out "$work/alone" --json > "$work/alone.json"
cmp "$work/run/model.safetensors" "$work/alone/model.safetensors"
echo "the model of one process, byte for byte: $(sha256sum < "$work/run/model.safetensors")"
