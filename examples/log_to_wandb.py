"""Log the history of a run to Weights & Biases.

Needs `pip install wandb`, but no account: the history is written to the folder wandb/.
"""

import argparse

import wandb

from gistgnn import GIST, Log, load
from gistgnn.nn import GraphSAGE

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--mode", default="offline", help="online sends the run to your account")
args = parser.parse_args()

graph = load("digits")
gist = GIST(
    lambda width: GraphSAGE(graph.num_features, (width,), graph.num_classes), args.width, sub_gcns=4
)
with wandb.init(project="gistgnn", mode=args.mode, config=vars(args)) as run:
    # trackio has the same functions. For MLflow write callbacks=[Log(mlflow.log_metrics)].
    result = gist.fit(graph, epochs=args.epochs, callbacks=[Log(run)], progress=False)
    run.summary["best test accuracy"] = result.test["accuracy"]
    last_score = run.summary["validation"]
    test_accuracy = result.test["accuracy"]
    print(f"{run.step} steps, last score {last_score:.1%}, test accuracy {test_accuracy:.1%}")
