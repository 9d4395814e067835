"""Θ in files: a run holds no more of it in memory than the slices that it works on."""

import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
import torch
from torch import Tensor, nn

from gistgnn.distributed import World
from gistgnn.errors import GistError, InputError
from gistgnn.partition import Blocks
from gistgnn.storage.folder_lock import FolderLock
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.storage.tensors import (
    LARGE,
    allocate,
    assign,
    map_tensors,
    read_tensors,
    temporary_tensors,
    write_tensors,
)
from gistgnn.storage.whole_files import remove_leftovers, replacing, sync, writing
from gistgnn.theta.folder import (
    BEST,
    NEW,
    PARAMETERS,
    RESUME,
    ROUND,
    START_AGAIN,
    STATE,
    State,
    find_writers_and_folder,
    remove,
    write_new,
)
from gistgnn.theta.memory import InMemory
from gistgnn.theta.model_spec import ModelSpec, check_shapes
from gistgnn.theta.registry import Store
from gistgnn.theta.slices import BEST as BEST_KEY
from gistgnn.theta.slices import MOMENTS, Slices, Trained, is_counter, name_of, values_by_key
from gistgnn.utils.interrupts import do_to_the_end, signals_wait
from gistgnn.utils.tensors import TensorSpec

_SHARED = "shared.safetensors"
_BLOCKS = "blocks/"


class OnDisk(InMemory):
    """Θ in safetensors files that are mapped into memory.

    A round is in Θ whole or not at all:

    1. The trained sub-GCNs are written into files of their own, which go to the disk while others
       train. A new theta.json is written beside them.
    2. When all ranks have done so, each moves its theta.json to its place. This commits the round.
    3. The values are copied into Θ.

    A process that is killed before the commit leaves Θ as it was. After one that is killed later,
    the values are copied again when Θ is next opened. A rank that was killed before its commit
    makes it then, if another rank has made its own. Of the ranks that share a copy of Θ, one
    writes.

    Raises:
        InputError: the folder is damaged, or of another model.
    """

    is_durable = True

    def __init__(
        self,
        slices: Slices,
        folder: Path,
        ranks: World,
        writer_of: Sequence[int] = (0,),
        newest: int = 0,
    ) -> None:
        super().__init__(slices, {}, streams=True, writer_of=writer_of)
        self.folder = folder
        self._ranks = ranks
        self._leads = writer_of[ranks.rank] == ranks.rank  # this rank writes the files
        self.is_new = False  # the files have been made for a run of which no round has begun
        # The folder that they will replace, and its lock.
        self.replaces: tuple[Path, FolderLock | None] | None = None
        self._background = ThreadPoolExecutor(1, "gistgnn-disk")
        self._writing = list[Future[None]]()
        self._lock = ranks.together(
            lambda: FolderLock(folder, beside=True) if self._leads else None
        )
        ranks.together(self._open)
        rank_states = ranks.gather([self._state.run, self._state.round, str(folder.absolute())])
        newest = max(newest, *(number for _, number, _ in rank_states), 0)
        self._lead(lambda: self._finish_last_round(newest))
        if len({run for run, *_ in rank_states}) > 1 or self._state.round < newest:
            raise InputError(
                f"{folder} and the folders of other ranks are not of the same run; {START_AGAIN}"
            )
        self.files_id = self._state.run
        self.folders = [*map(Path, dict.fromkeys(name for *_, name in rank_states))]
        if slices.share.total == 1:  # every copy has all of it
            self.folders = self.folders[:1]

    @classmethod
    def make(
        cls, store: Store, spec: ModelSpec, slices: Slices, ranks: World, *, replace: bool = False
    ) -> "OnDisk":
        writer_of, folder = find_writers_and_folder(store, slices.share, ranks)
        run = ranks.lead(lambda: secrets.token_hex(16))  # a run's settings may not be known yet
        # An older Θ stays until a round begins: see `replace_older`.
        new_folder = folder.with_name(f"{folder.name}{NEW}")
        written_folder = new_folder if replace else folder

        def write() -> FolderLock | None:
            if writer_of[ranks.rank] != ranks.rank:
                return None
            lock = FolderLock(folder, beside=True)
            if not replace and folder.exists() and any(folder.iterdir()):
                raise InputError(
                    f"{folder} is not empty: resume from the Θ in it, remove it, or choose another "
                    "folder"
                )
            remove(new_folder)
            write_new(
                written_folder,
                spec,
                slices,
                State(run, share=slices.share),
                half=store.precision == "bf16",
            )
            return lock

        lock = ranks.together(write)
        made = cls(slices, written_folder, ranks, writer_of)
        made.is_new = True
        if replace:
            made.replaces = folder, lock
        elif lock:
            lock.free()
        return made

    @classmethod
    def reopen(cls, store: Store, slices: Slices, ranks: World) -> "OnDisk | None":
        writer_of, folder = find_writers_and_folder(store, slices.share, ranks)
        return cls(slices, folder, ranks, writer_of) if all(ranks.gather(folder.exists())) else None

    def replace_older(self) -> None:
        self.is_new = False
        if self.replaces is None:
            return
        final, lock = self.replaces
        self.replaces = None

        def move() -> None:
            if self._leads:
                with writing(final, RESUME):
                    remove(final)
                    self.folder.rename(final)

        self._ranks.together(move)
        self.close()
        self.folder = final
        self._lock = lock
        self.folders = [folder.with_name(folder.name.removesuffix(NEW)) for folder in self.folders]

    def discard(self) -> None:
        if self.is_new and self._leads:
            remove(self.folder)
        self.close()

    def begin(self, members: Sequence[int] = ()) -> None:
        self.failure = None
        self._writing = []
        self.written = False

        def clear() -> None:
            if self._state.pending:  # writing it has failed
                self._write_round()
            with writing(self.folder / ROUND, RESUME) as round_folder:
                shutil.rmtree(round_folder, ignore_errors=True)
                round_folder.mkdir()

        self._lead(clear)

    def buffer(
        self, name: str, tensors: Trained, blocks: Blocks | None = None, *, reused: bool = False
    ) -> Trained:
        """Write tensors into a file of the round, and return them mapped.

        Without blocks the file is removed at once: it lasts as long as the tensors do.
        """
        block_tensors = {f"{_BLOCKS}{axis}": block for axis, block in enumerate(blocks or ())}
        try:
            path = self._write_file(
                f"{name}.safetensors", {**tensors, **block_tensors}, durable=blocks is not None
            )
            mapped = read_tensors(path, START_AGAIN)
            if blocks is None:
                path.unlink()
        except GistError as error:
            if not self._ranks.is_distributed:
                raise
            # The other ranks wait for this one, which tells them later.
            self.failure = self.failure or error
            return tensors
        return {key: mapped[key] for key in tensors}

    def forget_moments(self) -> None:
        super().forget_moments()
        files = self._state.moments

        def forget() -> None:
            # The state comes first: a kill in the middle of the removal leaves no half.
            self._change_state(counters={}, moments=[])
            for name in files:
                (self.folder / name).unlink(missing_ok=True)

        if files:
            self._lead(forget)

    def keep_best(self) -> None:
        def copy() -> None:
            with replacing(self.folder / BEST) as path:
                shutil.copyfile(self.folder / PARAMETERS, path)

        self._lead(copy)

    def write(self, number: int, loss: float, trained: Mapping[int, Trained]) -> None:
        """Commit the round, then write it into Θ (subAgg)."""
        moments_before = dict(self.moments)
        try:
            self._ranks.together(lambda: self._prepare(number, loss))
            with signals_wait():
                self._lead(self._commit)
                self._lead(lambda: do_to_the_end(self._copy_round))
        except BaseException:
            if self._state.round <= number:
                # theta.json does not name a new file of moments, so it is made again.
                self.moments = moments_before
            raise
        finally:
            self.written = self._state.round > number
        self._lead(self._end_round)

    def values(self, *, best: bool) -> dict[str, Tensor]:
        path = self.folder / BEST
        return read_tensors(path, START_AGAIN) if best and path.exists() else self.tensors

    def fill(
        self,
        keys: Mapping[str, torch.Size],
        saved: Callable[[str], Tensor],
        rounds: int,
        loss: float,
    ) -> None:
        def copy() -> None:
            counts = {
                key: float(saved(key))
                for key, shape in keys.items()
                if is_counter(key, shape, self.slices.specs[name_of(key)].shape)
            }
            files = self._make_moments([key for key in keys if key not in counts])
            for key in keys:
                if not key.startswith(BEST_KEY) and key not in counts:
                    self.target(key).copy_(saved(key))
            if best_keys := [key for key in keys if key.startswith(BEST_KEY)]:
                self._write_best(best_keys, saved)
            for name in (PARAMETERS, *files):
                sync(self.folder / name)
            self._change_state(round=rounds, loss=loss, counters=counts, moments=files)

        self.forget_moments()
        self._lead(copy)
        self._take_state()

    def _write_best(self, keys: Sequence[str], saved: Callable[[str], Tensor]) -> None:
        """Write the best Θ of a checkpoint; see `fill`."""
        with replacing(self.folder / BEST) as path:
            path.unlink()  # `allocate` makes the file.
            allocate(path, _specs_of(self.tensors))
            best_tensors = map_tensors(path)
            for key in keys:
                best_tensors[name_of(key)].copy_(saved(key))

    def close(self) -> None:
        if self._lock:
            self._lock.free()

    def model(self, spec: ModelSpec, *, best: bool) -> nn.Module:
        """The full model, whose large weights are mapped: a change of them does not reach Θ."""
        path = self.folder / BEST
        if best and path.exists():  # which a better one replaces, so these pages stay as they are
            return self._build_mapped(spec, path, read_tensors(path, START_AGAIN))
        large = {name: tensor for name, tensor in self.tensors.items() if tensor.nbytes >= LARGE}
        copies = temporary_tensors(_specs_of(large), self.folder)
        for name, tensor in large.items():
            copies[name].copy_(tensor)  # the pages of Θ change with the next round
        return self._build_mapped(spec, self.folder / PARAMETERS, self.tensors | copies)

    def running_model(self, spec: ModelSpec, module: nn.Module | None) -> nn.Module:
        path = self.folder / PARAMETERS
        return self._build_mapped(spec, path, read_tensors(path, START_AGAIN))

    def _build_mapped(
        self, spec: ModelSpec, path: Path, tensors: Mapping[str, Tensor]
    ) -> nn.Module:
        return assign(spec.on_meta(), tensors, str(path)).to(spec.device)

    def _lead(self, work: Callable[[], None]) -> None:
        """Do some work on the files where this rank leads.

        All ranks wait, raise its error, and see what is new.
        """
        self._ranks.together(work if self._leads else lambda: None)
        if not self._leads:
            self._open()

    def _open(self) -> None:
        """Read the state, and map the files that it names."""
        self._state = read_json(self.folder / STATE, State, START_AGAIN)
        self.tensors = self._map(PARAMETERS)
        specs = self.slices.rank_specs()
        check_shapes(
            self.tensors,
            specs,
            f"{self.folder}",
            "this model",
            "it is of another model; give it another folder",
        )
        self.moments = {
            key: value for name in self._state.moments for key, value in self._map(name).items()
        }
        if other := [
            key for key in self.moments if not key.startswith(MOMENTS) or name_of(key) not in specs
        ]:
            raise InputError(
                f"{self.folder} has moments of '{other[0]}', which this model has not; "
                f"{START_AGAIN}"
            )
        self._take_state()

    def _finish_last_round(self, newest: int) -> None:
        """Finish the last round, and remove the files of a round that was not committed.

        Args:
            newest: how many rounds some rank has committed. Then this one commits its last round as
                well, if it has only prepared it.
        """
        if self._state.round < newest and (self.folder / ROUND / STATE).exists():
            self._commit()
            self._open()
        if self._state.pending:
            self._write_round()
        shutil.rmtree(self.folder / ROUND, ignore_errors=True)
        for path in self.folder.glob("moments-*"):
            if path.name not in self._state.moments:
                path.unlink(missing_ok=True)
        remove_leftovers(self.folder)

    def _prepare(self, number: int, loss: float) -> None:
        """Write all that the round needs to be committed beside its sub-GCNs.

        Returns when it is on the disk.
        """
        if self.failure:
            raise self.failure
        state = self._write_shared(number, loss) if self._leads else None
        with writing(self.folder / ROUND, RESUME):
            for pending_write in self._writing:
                pending_write.result()
        if state:
            write_json(self.folder / ROUND / STATE, state)

    def _write_shared(self, number: int, loss: float) -> State:
        """Write what several sub-GCNs hold, and make the files of new moments.

        Returns the state after the round.
        """
        values, counts = values_by_key(self._read_round(), self.slices.specs)
        counters = self._state.counters | {key: float(value) for key, value in counts.items()}
        files = [*self._state.moments, *self._make_moments(values)]
        self._write_file(_SHARED, self.means({key: self.target(key) for key in values}, values))
        changes = {
            "round": number + 1,
            "loss": loss,
            "pending": True,
            "counters": counters,
            "moments": files,
        }
        return msgspec.structs.replace(self._state, **changes)

    def _commit(self) -> None:
        with writing(self.folder, RESUME) as folder:
            (folder / ROUND / STATE).replace(folder / STATE)
            sync(folder)
        self._state = read_json(self.folder / STATE, State, START_AGAIN)

    def _write_round(self) -> None:
        """Copy the committed round into Θ, and remove its files."""
        do_to_the_end(self._copy_round)
        self._end_round()

    def _copy_round(self) -> None:
        """Copy the committed round into Θ. Doing so again gives the same Θ."""
        values, _ = values_by_key(self._read_round(), self.slices.specs)
        shared = read_tensors(self.folder / ROUND / _SHARED, START_AGAIN)
        self.write_values({key: self.target(key) for key in values}, values, shared)
        self._take_state()

    def _end_round(self) -> None:
        with writing(self.folder, RESUME) as folder:
            for name in (PARAMETERS, *self._state.moments):
                sync(folder / name)
        self._change_state(pending=False)
        shutil.rmtree(self.folder / ROUND, ignore_errors=True)

    def _take_state(self) -> None:
        self.round = self._state.round
        self.loss = self._state.loss
        self.moments |= {key: torch.tensor(count) for key, count in self._state.counters.items()}

    def _read_round(self) -> list[Trained]:
        """Map the round's sub-GCNs, and open the round with their blocks."""
        subs = [
            read_tensors(path, START_AGAIN)
            for path in sorted((self.folder / ROUND).glob("?????.safetensors"))
        ]
        axes = range(len(self.slices.features))
        self.slices.open([tuple(sub.pop(f"{_BLOCKS}{axis}") for axis in axes) for sub in subs])
        return subs

    def _make_moments(self, keys: Iterable[str]) -> list[str]:
        """Make a file of zeros for the moments that are carried for the first time.

        Returns its name in a list, which is empty if there are no such moments.
        """
        new = [key for key in keys if key.startswith(MOMENTS) and key not in self.moments]
        if not new:
            return []
        name = f"moments-{len(self._state.moments)}.safetensors"
        with writing(self.folder / name, RESUME) as path:
            path.unlink(missing_ok=True)  # left by a killed process
            specs = _specs_of(self.tensors)
            allocate(path, {key: specs[name_of(key)] for key in new})
        self.moments |= self._map(name)
        return [name]

    def _map(self, name: str) -> dict[str, Tensor]:
        return read_tensors(self.folder / name, START_AGAIN, shared=True)

    def _write_file(
        self, name: str, tensors: Mapping[str, Tensor], *, durable: bool = True
    ) -> Path:
        """Write a file of the round; a durable one is on the disk when the round is prepared."""
        with writing(self.folder / ROUND / name, RESUME) as path:
            write_tensors(path, tensors, wait=False)
        if durable:
            self._writing.append(self._background.submit(sync, path))
        return path

    def _change_state(self, **changes: object) -> None:
        state = msgspec.structs.replace(self._state, **changes)
        write_json(self.folder / STATE, state)
        with writing(self.folder, RESUME) as folder:
            sync(folder)
        self._state = state


def _specs_of(tensors: Mapping[str, Tensor]) -> dict[str, TensorSpec]:
    return {name: TensorSpec.of(tensor) for name, tensor in tensors.items()}
