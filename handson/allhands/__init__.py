"""All Hands: what the labs of the workshop stand on. Read it, do not edit it.

Start with `labs.py` (the course) and `config.py` (a run). Then read `trace/events.py` and
`mgwfbp/plan.py`: the two things that programs exchange (what happened, and which gradients travel
together).
"""
