"""The run folder: what a run leaves on disk, written and read.

DIR holds result.json (settings, scores, history), model.safetensors (the model at its best
validation score) and report.html; and, until the run is finished, checkpoints/ and, if Θ is on
disk, theta/.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from msgspec import structs
from torch import Tensor, nn

from gistgnn.errors import InputError, reason, users_code
from gistgnn.evaluation import Evaluation
from gistgnn.fit.identity import Fingerprint, module_facts
from gistgnn.fit.loggers import ID
from gistgnn.fit.result import Result, write_result
from gistgnn.layout.axes import Build, construct
from gistgnn.nn.scaling import scaled_model, split_scaling
from gistgnn.runs.config import THETA, ModelConfig, RunConfig, call_own
from gistgnn.sampling import from_description
from gistgnn.settings import Training
from gistgnn.storage.checkpoints import Checkpoints, require_same_run
from gistgnn.storage.json_files import plain
from gistgnn.storage.record import MODEL, RESULT, Record, read_result
from gistgnn.storage.tensors import assign, check_digest, read_tensors
from gistgnn.storage.whole_files import reading
from gistgnn.theta.folder import every_folder, remove
from gistgnn.utils.formats import plural
from gistgnn.utils.machine import provenance, usable_device

CHECKPOINTS = "checkpoints"

log = logging.getLogger(__name__)


def record_of_command(config: RunConfig, result: Result, data_root: str) -> Record:
    """Return the record of a run of the command line, which has settings of its own."""
    return structs.replace(
        result.record(),
        config=plain(config.as_dict()),
        data_root=data_root,
        provenance=provenance(config.device),
    )


def write_run(out: Path, record: Record, model: nn.Module) -> None:
    """Write a run into its folder, result.json last. An interrupted run keeps its checkpoints."""
    write_result(out, record, model)
    if not record.interrupted:
        Checkpoints(out / CHECKPOINTS).remove()
        for folder in every_folder(out / THETA):
            remove(folder)


def clear_folder(out: Path, *, overwrite: bool, resume: bool) -> None:
    """Prepare a folder for a run: remove what `overwrite` replaces.

    An earlier run that is neither replaced nor resumed is an InputError.
    """
    for subfolder in (out / CHECKPOINTS, out / THETA):
        if subfolder.is_symlink():
            raise InputError(
                f"{subfolder} is a link, and a run removes files there: take it away, or choose "
                "another --out"
            )
    checkpoints = Checkpoints(out / CHECKPOINTS)
    if overwrite:
        checkpoints.remove()
    elif checkpoints.newest() and not resume:
        raise InputError(
            f"{out} holds an unfinished run: add --resume to go on with it, or --overwrite"
        )
    elif (out / RESULT).exists() and not resume:
        raise InputError(f"{out} already holds a result: choose another --out, or add --overwrite")
    # Such a Θ is of a run that is replaced, or that was killed before its first checkpoint.
    if not checkpoints.newest():
        for folder in every_folder(out / THETA):
            remove(folder)
    if not resume:
        (out / ID).unlink(missing_ok=True)


def is_finished(out: Path) -> bool:
    """Whether a folder holds a run of which nothing is left to do; see `check_finished`."""
    return Checkpoints(out / CHECKPOINTS).newest() is None and (out / RESULT).exists()


def check_finished(out: Path, fingerprint: Fingerprint) -> None:
    """Refuse the finished run in a folder if it is another one, did not end well, or is damaged."""
    record = read_record(out)
    advice = f"to train the model of this run on, give --init {out} and another --out"
    require_same_run(out / RESULT, record.fingerprint, fingerprint, advice)
    if record.interrupted:
        raise InputError(
            f"{out} holds an interrupted run, but no checkpoint to resume from: add --overwrite "
            "instead"
        )
    if record.diverged is not None:
        raise InputError(record.diverged)
    check_files(out, record)


def note_on(record: Record) -> str | None:
    """Return what has to be known of a run's model if the run did not end as it should.

    Returns None if it did.
    """
    if record.diverged is not None:
        why = record.diverged.partition(";")[0]
        if record.rounds == 0:
            return f"{why}: this model is as it was before training, and worth nothing"
        return f"{why}: this is the best model from before"
    if record.interrupted:
        rounds = plural(record.rounds, "round")
        return f"the run was interrupted after {rounds}; this is its best model so far"
    return None


def read_record(out: Path) -> Record:
    """Read the record of the run in a folder."""
    if out.is_file():
        raise InputError(f"{out} is a file: give the folder of the run, {out.parent}")
    if not (out / RESULT).exists():
        advice = "give the directory of a `gistgnn train` run"
        if Checkpoints(out / CHECKPOINTS).newest():
            advice = (
                "it holds a run that trains or was killed: end it by Ctrl-C, or resume it by "
                "--resume"
            )
        raise InputError(f"{out} holds no {RESULT}: {advice}")
    record = read_result(out / RESULT, _advice(out))
    with reading(out / RESULT, _advice(out)):
        config_of(record)
    return record


def trained_tensors(out: Path) -> dict[str, Tensor]:
    """Return the parameters and buffers of a finished run's best model.

    Another run begins with them.
    """
    check_files(out, read_record(out))
    return read_tensors(out / MODEL, _advice(out))


def check_files(out: Path, record: Record) -> None:
    """Read the files of a run once, and compare them with the digests in its result.json."""
    for name, digest in record.files.items():
        check_digest(out / Path(name).name, digest, _advice(out))
    if MODEL not in record.files:
        raise InputError(f"{out / RESULT} lists no {MODEL}; {_advice(out)}")


def _advice(out: Path) -> str:
    """Return what to do about a damaged file of a run."""
    if Checkpoints(out / CHECKPOINTS).newest():
        return "go on from the run's last checkpoint by --resume, which writes it again"
    return "train the run again"


def config_of(record: Record) -> RunConfig:
    """Return the configuration of a recorded run."""
    fields = dict(record.config)
    model = dict(fields.pop("model"))
    model["hidden"] = tuple(model["hidden"])
    evaluation = Evaluation(**fields.pop("evaluation"))
    if model.get("own"):  # then `Result.save` has written the record
        model_config = ModelConfig(model["name"], model["hidden"])
        return RunConfig(
            fields["dataset"], model_config, seed=fields["seed"], evaluation=evaluation
        )
    return RunConfig(
        model=ModelConfig(**model),
        training=Training(**fields.pop("training")),
        sampler=from_description(fields.pop("sampler")),
        evaluation=evaluation,
        **fields,
    )


def open_run(
    out: Path, build: Callable[..., Any] | None = None
) -> tuple[RunConfig, Record, nn.Module]:
    """Return a finished run's configuration, record, and model in evaluation mode.

    Large weights are mapped.

    Args:
        out: the folder of the run.
        build: for a model of the user's own, the function that was given to `GIST`, or to --model.
            Without it such a model is refused: code that result.json names does not run unasked.
    """
    record = read_record(out)
    check_files(out, record)
    config = config_of(record)
    model = record.config["model"]
    is_users_own = model.get("own") or config.model.own
    if is_users_own and build is None:
        command = config.model.name if config.model.own else "package.module:function"
        raise InputError(
            f"the model of {out} is a {model['name']} of your own: give the function that builds "
            f"it (--model {command}, or load_run(folder, build))"
        )
    try:
        features = record.graph.features
        classes = record.graph.classes

        def make(widths: Any) -> Any:
            if build is None or not is_users_own:
                return config.model.build(features, widths, classes)
            if config.model.own:
                return call_own(
                    config.model.name, build, features, widths, classes, config.model.args
                )
            with users_code(f"build({widths}) failed", "give the function that was given to GIST"):
                return build(widths)

        if config.method == "ensemble" and not is_users_own:
            empty_model = config.trainer(features, classes).trained_spec.on_meta()
        else:
            with torch.device("meta"):
                empty_model = construct(
                    make, config.model.hidden, shared=model.get("shared", False)
                )
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{out / RESULT} does not describe a model ({reason(error)}): train the run again"
        ) from error
    if config.method != "ensemble":
        check_model(out, record.fingerprint.get("model", {}), empty_model)
    tensors, scaling = split_scaling(read_tensors(out / MODEL, _advice(out)))
    if record.standardised != (scaling is not None):
        has = "no feature_mean" if scaling is None else "a feature_mean"
        raise InputError(f"{out / MODEL} has {has}, but {RESULT} says otherwise: {_advice(out)}")
    return config, record, scaled_model(assign(empty_model, tensors, str(out / MODEL)), scaling)


def check_model(out: Path, trained: dict[str, Any], model: nn.Module) -> None:
    """Refuse a model with other layers than the one that was trained.

    The tensors of another model may fit all the same: a norm or an activation need not have any.
    Where only an attribute differs, a note is logged.

    Args:
        out: the folder of the run.
        trained: what the fingerprint of the run says of its model.
        model: the one that was built.
    """
    built = plain(module_facts(model))
    for name in dict.fromkeys((*built, *trained)):
        before = trained.get(name)
        now = built.get(name)
        if before == now:
            continue
        difference = (
            f"the model that is built is not the one of {out}: {name} was {before!r}, now {now!r}"
        )
        if name.startswith("class of "):
            raise InputError(f"{difference}; give the function that was given to GIST")
        if isinstance(before, (int, float, str)) and isinstance(now, (int, float, str)):
            log.warning("%s", difference)


def choose_device(name: str) -> str:
    """Return the name of a device that torch finds; "auto" is the GPU if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    usable_device(name)
    return name


def load_run(folder: str | Path, build: Build | None = None) -> Result:
    """Return the result of a finished run.

    It is a run of `gistgnn train`, or one that `Result.save` has written.

    Example:
        >>> result = load_run("runs/mine", build)
        >>> result.test["accuracy"]

    Args:
        folder: of the run.
        build: for a model that is not one of ours, the function that was given to `GIST`.
    """
    _, record, model = open_run(Path(folder), build)
    if note := note_on(record):
        log.warning("%s: %s", folder, note)
    return Result(model=model, **structs.asdict(record))
