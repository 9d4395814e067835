"""A store in which every run is finished, for experiments that train nothing."""

from typing import Any

from gistgnn.compare import Record, RunStore
from gistgnn.runs import RunConfig
from gistgnn.storage.json_files import plain
from tests.report.records import run_record

SCORES = {"accuracy": 0.8, "f1_parts": 0.75}
EVALUATED = {
    "round": 1,
    "epoch": 1.0,
    "step": 1,
    "loss": 1.0,
    "lr": 0.01,
    "validation": 0.8,
    "test": 0.8,
    "train_seconds": 1.0,
}
RUN = {
    "validation": SCORES,
    "test": SCORES,
    "train_seconds": 1.0,
    "rounds": 1,
    "steps": 1,
    "peak_memory_bytes": 1,
    "inference_seconds": 1.0,
    "history": [EVALUATED],
}


class Finished(RunStore):
    """A store in which every run is finished, and all have the same results.

    `asked` are the runs it was asked for.
    """

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self.asked = list[RunConfig]()

    def run_all(self, configs: Any, label: str) -> list[Record]:
        chosen = list(configs)
        self.asked += chosen
        return [self.get(config) for config in chosen]

    def get(self, config: RunConfig) -> Record:
        traffic = {"workers": config.sub_gcns, "bytes_per_round": 2.0}
        return run_record(config=plain(config.as_dict()), traffic=traffic, **RUN)
