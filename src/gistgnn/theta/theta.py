"""The global parameters Θ, out of which sub-GCNs take slices, and into which they are written."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from threading import Lock

import torch
from torch import Tensor, nn

from gistgnn.distributed import Alone, World
from gistgnn.errors import GistError, InputError
from gistgnn.partition import Blocks
from gistgnn.storage.checkpoints import Checkpoint, Part
from gistgnn.storage.json_files import read_json
from gistgnn.storage.tensors import assign
from gistgnn.theta.disk import OnDisk
from gistgnn.theta.exchange import Exchange, Numbers
from gistgnn.theta.folder import BEST, START_AGAIN, STATE, State, remove
from gistgnn.theta.memory import InMemory
from gistgnn.theta.model_spec import ModelSpec, check_shapes
from gistgnn.theta.registry import SHARES, Store
from gistgnn.theta.slices import MOMENTS, THETA, Slices, Trained, name_of
from gistgnn.utils.tensors import TensorSpec


class Theta:
    """The parameters and buffers of the global model, and the optimiser's carried moments.

    Its place says where this rank's part lies, its exchange who trains the sub-GCNs and how their
    slices get there. One round is open at a time: `begin` opens it, `slice_of` and `keep` take
    slices out and hold what has been trained, `commit` writes it into Θ. Until then Θ is what it
    was.
    """

    def __init__(self, place: InMemory, exchange: Exchange) -> None:
        self.place = place
        self.exchange = exchange
        self.number = -1  # of the open round; -1: there is none
        self.openings = 0  # how often a round was opened, or Θ was given up for that of another run
        # The trained sub-GCNs of this process in the open round.
        self.trained: dict[int, Trained] = {}
        # Slices of sub-GCNs that have not trained yet, as other ranks have sent them.
        self._received: dict[int, Trained] = {}
        self._arriving: Iterator[tuple[int, Trained]] = iter(())  # the next ones
        self._receiving = Lock()
        self._reader: Future[None] | None = None
        self._is_given_up = False
        # The folders of another Θ, from which this one has been restored.
        self._sources: list[Path] = []

    @classmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> "Theta":
        """Make Θ with the model's initial values.

        With `replace` it takes the place of an older Θ in the store's folder.
        """
        slices, exchange = _make_slices_and_exchange(store, spec, ranks)
        return cls(
            _load_place_class(store).make(store, spec, slices, ranks, replace=replace), exchange
        )

    @classmethod
    def reopen(cls, store: Store, spec: ModelSpec, ranks: World) -> "Theta | None":
        """Open the Θ that an earlier process has left; return None if there is none.

        The Θ of another model is an InputError.
        """
        slices, exchange = _make_slices_and_exchange(store, spec, ranks)
        reopened = _load_place_class(store).reopen(store, slices, ranks)
        return cls(reopened, exchange) if reopened else None

    @property
    def shards(self) -> int:
        """How many processes write a checkpoint together."""
        return 1 if self.place.is_durable else self.place.slices.share.total

    @property
    def shard(self) -> int | None:
        """Which of the shards of a checkpoint this process writes; None if it writes nothing."""
        ranks = self.exchange.ranks
        return ranks.rank if ranks.leads or self.shards > 1 else None

    def begin(self, number: int, blocks: Sequence[Blocks]) -> list[int]:
        """Open round t, and forget one that was open.

        Returns the sub-GCNs that this process trains.
        """
        self._receive_all()
        self.number = number
        self.trained = {}
        self._received = {}
        self.openings += 1
        members = self.exchange.members(len(blocks))
        self.place.begin(members)
        self.place.slices.open(blocks)
        self._arriving = self.exchange.receive_slices(self.place)
        if not members:
            self._receive_all()
        return members

    def slice_of(self, i: int) -> dict[str, Tensor]:
        """The slice of Θ that belongs to sub-GCN i, by name."""
        if (received := self._receive(i)) is None:
            return self.place.slice_of(i)
        return {name: received[f"{THETA}{name}"] for name in self.place.slices.specs}

    def moments_of(self, i: int) -> dict[str, Tensor]:
        """A copy of the moments of sub-GCN i's slice, by key; those that Θ holds."""
        if (received := self._receive(i)) is None:
            return self.place.moments_of(i)
        counters = {
            key: value.clone() for key, value in self.place.moments.items() if not value.dim()
        }
        return {
            key: value.clone() for key, value in received.items() if key.startswith(MOMENTS)
        } | counters

    def keep(self, i: int, trained: Trained) -> None:
        """Hold a trained sub-GCN until the end of the round.

        It is copied to where Θ is, if its module is used again.
        """
        name = f"{self.exchange.file_prefix}{i:05}"
        # Where ranks own rows, the place writes what the owners receive, not this.
        blocks = None if self.exchange.file_prefix else self.place.slices.blocks[i]
        self.trained[i] = self.place.buffer(name, trained, blocks, reused=self.place.streams)
        self._received.pop(i, None)

    def agree(self, numbers: Numbers, error: GistError | None) -> Numbers:
        """Merge the numbers of all ranks' sub-GCNs.

        If a rank has an error, the first one is raised on all ranks.
        """
        self._receive_all()
        return self.exchange.agree(numbers, error or self.place.failure, self.trained)

    def commit(self, loss: float) -> None:
        """Write the round into Θ (subAgg).

        Entries that several sub-GCNs hold are averaged over them.
        """
        self.place.write(self.number, loss, self.exchange.send_trained(self.place, self.trained))
        self.trained = {}
        self._received = {}

    def give_up(self) -> None:
        """Let an open round not be written any more: another Θ takes the place of this one."""
        self.openings += 1
        self.number = -1
        self.trained = {}
        self._received = {}
        self._is_given_up = True

    def replace_older(self) -> None:
        """Move files that were made beside those of an older Θ to their place."""
        self.place.replace_older()

    def discard(self) -> None:
        """Remove the files that were made for this Θ: the run that has made it is refused."""
        self.place.discard()

    def copy(self) -> dict[str, Tensor]:
        """A copy of the parameters and buffers that this process holds, by name."""
        return {name: tensor.clone() for name, tensor in self.place.tensors.items()}

    def checkpoint(self) -> dict[str, Part]:
        """This process's part of the tensors from which Θ is restored, not copied.

        They are Θ, its moments and the best Θ.
        """
        if self.place.is_durable:
            return {}
        parts = {}
        for key, tensor in self.place.all_tensors().items():
            part = self.place.slices.part(key, tensor)
            if part is not None:
                parts[key] = part
        return parts

    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Resume after some rounds from a checkpoint.

        Any place and any number of ranks may have written it.
        """
        slices = self.place.slices
        loss = self.place.loss
        rounds_in_theta = self.place.round
        if saved.theta is not None and saved.theta == self.place.files_id:
            # A kill may come before scores are saved.
            if rounds_in_theta not in (rounds, rounds + 1):
                raise InputError(
                    f"{self.place.folders[0]} has been through {rounds_in_theta} rounds, the "
                    f"checkpoint beside it through {rounds}: they are not of the same run; start "
                    "again"
                )
            return
        if self.place.is_durable and rounds_in_theta not in (0, rounds, rounds + 1):
            raise InputError(
                f"{self.place.folders[0]} holds a Θ after {rounds_in_theta} rounds, and the "
                f"checkpoint is of another one, after {rounds} rounds: choose another folder, or "
                "remove this one"
            )
        if saved.theta is not None:
            rounds, loss = _add_files(saved, slices, self.exchange.ranks, rounds)
            self._sources = saved.folders
        shapes = (
            (name_of(key), shape) for key, shape in saved.shapes.items() if key.startswith(THETA)
        )
        saved_specs = {name: TensorSpec(shape, torch.float32) for name, shape in shapes}
        check_shapes(saved_specs, slices.specs, "the checkpoint", "this model", "start again")
        self.place.fill(saved.shapes, partial(slices.saved_part, saved), rounds, loss)

    def remove_sources(self) -> None:
        """Remove the files of another Θ, from which this one has been restored.

        It is called once a checkpoint of this Θ is complete, and no longer needs them.
        """
        while self._sources:
            remove(self._sources.pop())

    def full_model(self, spec: ModelSpec, *, best: bool = False) -> nn.Module:
        """A new full model with Θ's parameters, in evaluation mode; all ranks call this.

        With `best` the parameters are the best ones.
        """
        # It does not change with later rounds: parameters in memory are copied, and large ones in
        # files are mapped. Where ranks hold rows, rank 0 collects them, and other ranks get a model
        # without values.
        if self._is_given_up and self.place.is_durable:
            raise InputError(
                "the files of this Θ have been replaced by those of a later run: ask that run for "
                "its model"
            )
        self._receive_all()
        if (collected := self.exchange.collect_theta(self.place, best=best)) is None:
            return spec.with_derived(self.place.model(spec, best=best))
        full = spec.on_meta()
        return (
            spec.with_derived(assign(full, collected, "Θ").to(spec.device))
            if self.exchange.ranks.leads
            else full
        )

    def model_on_leader(self, spec: ModelSpec) -> nn.Module:
        """A new full model with Θ's parameters, as `full_model`.

        On ranks other than 0 it has no values.
        """
        if self.place.slices.share.total > 1 or self.exchange.ranks.leads:
            return self.full_model(spec)
        return spec.on_meta()

    def running_model(self, spec: ModelSpec, module: nn.Module | None) -> nn.Module:
        """The full model with the parameters that Θ has now.

        On ranks other than 0 it has no values.
        """
        # All ranks call this, and it is for our own use: `module` is that of the last call, which
        # may be filled again, and large parameters may be Θ's own.
        if self.place.slices.share.total > 1:
            return self.full_model(spec)
        if not self.exchange.ranks.leads:
            return spec.on_meta()
        return spec.with_derived(self.place.running_model(spec, module))

    def _receive(self, i: int) -> Trained | None:
        """Return what other ranks have sent of sub-GCN i's slice, once it is here.

        Returns None where this rank has all of the slice.
        """
        if i not in self._received:
            with self._receiving:  # a thread takes the next one while a sub-GCN trains
                while i not in self._received and (arrived := next(self._arriving, None)):
                    self._received[arrived[0]] = arrived[1]
        return self._received.get(i)

    def _receive_all(self) -> None:
        """Go through what is left to exchange of the open round: other ranks may wait for it."""
        with self._receiving:
            self._received |= dict(self._arriving)

    def block_writes_until(self, reader: Future[None]) -> None:
        """Let the writing of the next round wait until a thread has read Θ."""
        self._reader = reader

    def wait_for_reader(self) -> None:
        """Wait for the thread that reads Θ, if there is one, and raise its error."""
        reader = self._reader
        self._reader = None
        if reader:
            reader.result()


def _load_place_class(store: Store) -> type[InMemory]:
    place_class: type[InMemory] = resolve_name(store.place.class_name)
    return place_class


def _make_slices_and_exchange(
    store: Store, spec: ModelSpec, ranks: World
) -> tuple[Slices, Exchange]:
    kind = SHARES[store.share]
    return Slices(spec.layout, spec.widths, spec.tensor_specs(), kind.share(ranks)), kind(ranks)


def _add_files(saved: Checkpoint, slices: Slices, ranks: World, rounds: int) -> tuple[int, float]:
    """Add the files of a Θ to the checkpoint that names them.

    Other ranks have written them, or ranks with another store.

    Returns:
        The rounds that this Θ has been through, and the loss.
    """

    def finish_last_round() -> None:
        """Finish the last round in all of the files."""
        if missing := [folder for folder in saved.folders if not folder.exists()]:
            raise InputError(
                f"{missing[0]} is gone, which holds the parameters: put it back, or start again"
            )
        states = [read_json(folder / STATE, State, START_AGAIN) for folder in saved.folders]
        newest = max(state.round for state in states)
        for state, folder in zip(states, saved.folders, strict=True):
            if state.run != saved.theta or newest not in (rounds, rounds + 1):
                message = f"{folder} is of another run than the checkpoint beside it"
                raise InputError(f"{message}: put back the folder of this run, or start again")
            OnDisk(_make_slices(slices, state), folder, Alone(), newest=newest).close()

    ranks.lead(finish_last_round)
    for folder in saved.folders:
        file_slices = _make_slices(slices, read_json(folder / STATE, State, START_AGAIN))
        # No rank writes these files, so they are not locked: other processes read them as well.
        files = OnDisk(file_slices, folder, Alone(), writer_of=[-1])
        if (folder / BEST).exists():
            files.best = files.values(best=True)
        for key, tensor in files.all_tensors().items():
            if part := file_slices.part(key, tensor):
                saved.add(key, part)
    return files.round, files.loss


def _make_slices(slices: Slices, state: State) -> Slices:
    return Slices(slices.layout, slices.widths, slices.specs, state.share)
