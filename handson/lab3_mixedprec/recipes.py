"""Which parts of mixed precision does a task need? Make the task harder or easier, and see.

    python handson/lab3_mixedprec/recipes.py
    python handson/lab3_mixedprec/recipes.py --loss-weight 1 --seeds 0 1 2
    python handson/lab3_mixedprec/recipes.py --learning-rate 1e-3 --steps 500

Lab 3 sets both difficulties on purpose: a small loss weight, so that gradients underflow, and a
small learning rate, so that FP16 weights lose updates. Take one away: which recipes learn now?
"""

import argparse
import dataclasses

from rich.console import Console

from allhands.train import mixed_table


def main() -> None:
    task = mixed_table.TASK
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--loss-weight", type=float, default=task.loss_weight)
    parser.add_argument("--learning-rate", type=float, default=task.learning_rate)
    parser.add_argument("--steps", type=int, default=task.n_steps)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--recipes", nargs="+", choices=mixed_table.RECIPES, default=list(mixed_table.RECIPES)
    )
    options = parser.parse_args()
    task = dataclasses.replace(
        task,
        loss_weight=options.loss_weight,
        learning_rate=options.learning_rate,
        n_steps=options.steps,
    )
    outcomes = [
        mixed_table.run(recipe, seed, task) for recipe in options.recipes for seed in options.seeds
    ]
    Console().print(mixed_table.table(outcomes))


if __name__ == "__main__":
    main()
