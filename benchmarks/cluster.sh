#!/bin/bash
# A cluster in miniature, as root, with nothing set up before: four machines on this one, each with a network, a host
# name, a working folder and a cache of its own. They share the folder of the run.
#
#     bash benchmarks/cluster.sh                # all three parts; or one: measure 100, measure 1000, lose
#
# A machine sends at the rate of tc's tbf; benchmarks/switch.py adds 20 ms in each direction and the receiver's rate.
# torchrun is started by the variables that the Kubeflow operator gives to a pod. A machine can join later only with
# TORCH_DISABLE_SHARE_RDZV_TCP_STORE. All runs in namespaces of its own, so everything ends with it.
set -eu
[ "${INSIDE:-}" ] || INSIDE=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc bash "$0" "$@"
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 PYTHONPATH="$PWD:${PYTHONPATH:-}" DELAY=20 work
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mount -t tmpfs none /run
mkdir -p "$work"/m{1,2,3,4}
printf '%s\n' "127.0.0.1 localhost" 10.86.53.{"1 m1","2 m2","3 m3","4 m4"} > "$work/hosts"
mount --bind "$work/hosts" /etc/hosts
COMMON=(--dataset digits --model graphsage --sub-gcns 4 --set optimizer_state=carry --timeout 30)
LARGE=(--hidden "${HIDDEN:-4096}" "${HIDDEN:-4096}" --epochs "${EPOCHS:-96}" --local-steps 3 --evaluate-every 1000)
SMALL=(--hidden 256 256 --epochs "${EPOCHS:-3600}" --local-steps 10 --evaluate-every 1000 --checkpoint-every 5)

connect() { # MBIT
    for i in 1 2 3 4; do ip netns del "m$i" 2> /dev/null || true; done
    chrt --fifo 1 python benchmarks/switch.py 4 "$DELAY" "$1" & switch=$! # a network does not wait for a core
    until ip link show wire4 &> /dev/null; do sleep 0.1; done
    for i in 1 2 3 4; do
        ip netns add "m$i"
        ip link set "wire$i" netns "m$i" name wire
        ip -n "m$i" link set lo up
        ip -n "m$i" address add "10.86.53.$i/24" dev wire
        ip -n "m$i" link set wire up
        ip netns exec "m$i" tc qdisc add dev wire root tbf rate "$1mbit" burst 256kb latency 2s
    done
}

machine() { # I NODES PROGRAM OPTION...: starts torchrun on machine I
    (cd "$work/m$1" && export TMPDIR="$PWD" GISTGNN_CACHE="$PWD/cache" GLOO_SOCKET_IFNAME=wire PET_NNODES="$2" \
        PET_NPROC_PER_NODE=1 PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=m1:29500 PET_MAX_RESTARTS=10 \
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 &&
        exec ip netns exec "m$1" unshare --uts sh -c 'hostname "$0"; exec torchrun -m "$@"' \
            "m$1" $3 train --resume "${COMMON[@]}" --store sharded "${@:4}" >> log 2>&1) &
}

measure() { # MBIT: rounds of the large model
    connect "$1"
    mkdir "$work/run-$1"
    for i in 1 2 3 4; do
        machine "$i" 4 "benchmarks.exchanges $work/run-$1" "${LARGE[@]}" --out "$work/run-$1"
        ranks[i]=$!
    done
    wait "${ranks[@]}" || { tail -n 20 "$work"/m?/log; exit 1; }
    python -m benchmarks.exchanges "$work/run-$1" report "$1" "$DELAY"
    for i in 1 2 3 4; do ip netns exec "m$i" cat /sys/class/net/wire/statistics/tx_bytes; done |
        awk '{all += $1} END {printf "all devices sent %.0f MB in the whole run\n", all / 1e6}'
    kill "$switch"
}

newest() {
    (cd "$work/run/checkpoints" && ls -d round-*/state.json) 2> /dev/null | tail -n 1 | sed 's/round-0*//; s,/.*,,'
}

later() { # N: waits until N more rounds are saved
    local goal=$(($(newest || true) + $1))
    until [ "$(newest || true)" ] && [ "$(newest)" -ge "$goal" ]; do sleep 0.2; done
    echo "$(date +%T): round $(newest) is saved"
}

worker() { for pid in $(ip netns pids "$1"); do ! grep -qz ^RANK= "/proc/$pid/environ" || echo "$pid"; done; }

lose() { # what a killed rank and a lost machine cost
    connect 100
    for i in 1 2 3 4; do machine "$i" 3:4 gistgnn "${SMALL[@]}" --out "$work/run"; ranks[i]=$!; done
    later 10
    kill -9 $(worker m3)
    echo "kill -9 to the rank of m3"
    later 10
    ip -n m3 link set wire down
    kill -9 $(ip netns pids m3)
    wait "${ranks[3]}" 2> /dev/null || true
    echo "m3 is cut off and ends"
    later 10
    ip -n m3 link set wire up
    machine 3 3:4 gistgnn "${SMALL[@]}" --out "$work/run"
    ranks[3]=$!
    echo "m3 starts again"
    wait "${ranks[@]}" || { tail -n 20 "$work"/m?/log; exit 1; }
    grep -h "rounds done\|rounds lost\|does not answer" "$work"/m1/log
    python -m gistgnn train "${COMMON[@]}" "${SMALL[@]}" --out "$work/alone" > /dev/null 2>&1
    cmp "$work/run/model.safetensors" "$work/alone/model.safetensors" && echo "the model of one process, byte for byte"
    python -c 'import json, sys; print(json.load(open(sys.argv[1]))["communication"]["ranks"], "ranks at the end")' \
        "$work/run/result.json"
}

ranks=()
if [ $# -gt 0 ]; then "$@"; else
    measure 100
    measure 1000
    lose
fi
