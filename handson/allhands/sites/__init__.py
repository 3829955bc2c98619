"""Which site runs the jobs, and how is it described? The other half of cluster_jobs/sites.

`detect` looks at this login node, `ask` holds the questions, `write` makes a site file of the
answers, `show` says where each value comes from, `check` whether what the file names is there.
"""
