"""A LightningModule that trains by GIST: a batch of the trainer is a round.

Needs `pip install pytorch-lightning`.
"""

import argparse

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_geometric.nn import GraphSAGE

from gistgnn import GIST
from gistgnn.graphs import Graph, load

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=30)
parser.add_argument("--folder", default="lightning", help="for logs and checkpoints")
args = parser.parse_args()


class NodeClassifier(pl.LightningModule):
    """A GraphSAGE whose four narrow parts train in every round."""

    def __init__(self, graph: Graph, width: int = 256, steps: int = 10, lr: float = 0.01) -> None:
        super().__init__()
        self.automatic_optimization = False  # every sub-GCN has its own optimiser
        self.graph = graph
        self.steps = steps
        self.lr = lr
        self.gist = GIST(self.build, widths=width, sub_gcns=4)
        self.model = self.gist.model().train()  # the full model, which checkpoints hold

    def build(self, width: int) -> nn.Module:
        """Return the model at a width."""
        model: nn.Module = GraphSAGE(
            self.graph.num_features, width, 3, self.graph.num_classes, dropout=0.2
        )
        return model

    def training_step(self, batch: object) -> None:
        """Train a round."""
        round = self.gist.begin_round()
        graph = self.graph
        for sub in round:
            optimizer = torch.optim.Adam(sub.parameters(), lr=self.lr)
            for _ in range(self.steps):
                out = sub(graph.x, graph.edge_index)
                loss = F.cross_entropy(out[graph.train], graph.y[graph.train])
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
        round.aggregate()  # writes the sub-GCNs back
        counter = self.optimizers()
        assert not isinstance(counter, list)
        counter.step()
        self.log("loss", loss.detach())

    def on_validation_start(self) -> None:
        """Take the parameters as they are after the last round."""
        self.model.load_state_dict(self.gist.model().state_dict())

    def validation_step(self, batch: object) -> None:
        """Score the full model."""
        self.score("val", self.graph.val)

    def test_step(self, batch: object) -> None:
        """Score the best model."""
        self.score("test", self.graph.test)

    def score(self, name: str, nodes: torch.Tensor) -> None:
        """Log the share of some nodes whose class is right."""
        right = self.model(self.graph.x, self.graph.edge_index).argmax(dim=1) == self.graph.y
        self.log(name, right[nodes].float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimiser that changes nothing: Lightning counts its steps, one for a round."""
        return torch.optim.SGD(self.model.parameters(), lr=0.0)


graph = load("digits")
# An epoch has one batch: a round on the whole graph.
one_batch = DataLoader(TensorDataset(torch.zeros(1)))
trainer = pl.Trainer(
    max_epochs=args.rounds,
    callbacks=[
        ModelCheckpoint(monitor="val", mode="max"),
        EarlyStopping("val", mode="max", patience=10),
    ],
    accelerator="cpu",
    default_root_dir=args.folder,
    enable_progress_bar=False,
    log_every_n_steps=1,
)
pl.seed_everything(0)
module = NodeClassifier(graph)
trainer.fit(module, one_batch, one_batch)
trainer.test(module, one_batch, ckpt_path="best", weights_only=True)
