"""PBS on a box: headers, commands and variables of PBS, with the box's Slurm behind them. Not PBS.

    python -m allhands.box.pbs qsub lab1.pbs        (in a box: simply `qsub lab1.pbs`)

A job's way: `header.py` reads the `#PBS` lines and qsub's command line, strictly, with the tables
in `words.py`, and makes a `job.py` of them; `qsub.py` hands that to Slurm and keeps a note of it
(`spool.py`); on the node `mom.py` starts the script with the variables that a PBS job sees;
`stat.py` is qstat and qdel (`table.py` and `queues.py`: what qstat prints). What was known to
differ from OpenPBS 23:

- Output appears in its file as it is written, not at the job's end.
- Any account is taken; a real PBS knows its groups and projects.
- Memory, mail and priorities are read, and have no effect.
- Chunks of different sizes get room as if all were as large as the largest.
"""
