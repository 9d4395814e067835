"""The files of a new Θ."""

import secrets
import shutil
from contextlib import closing
from pathlib import Path

from gistgnn.theta.disk.state import MOMENT_FILES, PARAMETERS, STATE, write_state
from gistgnn.theta.disk.tensor_file import unwritable
from gistgnn.theta.disk.tensor_folder import EditableFolder
from gistgnn.theta.initial import write_initial
from gistgnn.theta.model_spec import ModelSpec


def write_new(folder: Path, spec: ModelSpec, *, half: bool) -> None:
    """Write the model's initial values into a folder, in place of what is there; `half`: in bfloat16.

    Raises:
        InputError: the disk does not take them.
    """
    temporary = folder.with_name(folder.name + ".tmp")
    run = secrets.token_hex(16)  # not a digest of the run's settings: Θ may be made before they are known
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        with closing(EditableFolder.create(temporary / PARAMETERS, spec.tensor_specs(half=half), run)) as files:
            write_initial(spec, lambda name, start, values: files.file_of[name].write_flat(name, start, values))
            files.sum_up()
            files.sync()
            digest = files.save(0)
        state = {"run": run, "round": 0, "loss": 0.0, "written": 0, "best": None, "counters": {}}
        write_state(temporary / STATE, {**state, PARAMETERS: digest, MOMENT_FILES: None})
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
