"""All rules of `allhands check`, in the order of their groups."""

from allhands.migrate.rule import Rule
from allhands.migrate.rules_data import DATA
from allhands.migrate.rules_device import DEVICES
from allhands.migrate.rules_optimizer import OPTIMIZER
from allhands.migrate.rules_output import OUTPUT
from allhands.migrate.rules_serial import SERIAL
from allhands.migrate.rules_talk import TALK

__all__ = ["RULES", "Rule"]

RULES: tuple[Rule, ...] = (*TALK, *DEVICES, *DATA, *OPTIMIZER, *OUTPUT, *SERIAL)
