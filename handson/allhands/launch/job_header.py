"""What does Slurm take from a job script? Its header, read by the rules of sbatch.

Rules, from sbatch's manual: a header line begins with `#SBATCH`, exactly so, at the left edge; the
first line that is neither empty nor a comment is the first command, and no header counts after it.
Other lines that begin with `#` are comments. Nobody warns of a header that does not count.
"""

import re
import shlex

TIME_FORMS = (  # sbatch, option --time; the parts in seconds
    (r"(\d+)", (60,)),
    (r"(\d+):(\d+)", (60, 1)),
    (r"(\d+):(\d+):(\d+)", (3600, 60, 1)),
    (r"(\d+)-(\d+)", (86400, 3600)),
    (r"(\d+)-(\d+):(\d+)", (86400, 3600, 60)),
    (r"(\d+)-(\d+):(\d+):(\d+)", (86400, 3600, 60, 1)),
)
SHORT = {"-N": "--nodes", "-n": "--ntasks", "-t": "--time", "-J": "--job-name"}
SHORT |= {"-c": "--cpus-per-task", "-a": "--array", "-d": "--dependency", "-o": "--output"}


def header(script: str) -> dict[str, str]:
    """The options that count, by their long names: {"--nodes": "2", "--requeue": ""}.

    An option that comes twice has its last value, as with sbatch.
    """
    found, option = {}, ""
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            for word in _words(line.removeprefix("#SBATCH")):
                if word.startswith("--"):
                    option, _, value = word.partition("=")
                elif word.startswith("-"):  # `-N 2` or `-N2`
                    option, value = SHORT.get(word[:2], word[:2]), word[2:]
                else:  # the value of the word before it: `--nodes 2`
                    value = word
                found[option] = value
        elif line.strip() and not line.startswith("#"):
            break
    return found


def _words(line: str) -> list[str]:
    """Words in quotes are one; `#` begins a comment."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quote that does not end
        return line.split()


def limit_s(text: str) -> int:
    """The time limit that sbatch reads in `text`, in seconds: "10" and "10:00" are ten minutes.

    Raises ValueError, with the forms that there are, for anything else.
    """
    for form, parts_s in TIME_FORMS:
        if found := re.fullmatch(form, text):
            return sum(int(n) * part_s for n, part_s in zip(found.groups(), parts_s, strict=True))
    raise ValueError(
        f"The time {text!r} was not understood. Write hours:minutes:seconds, such as 00:10:00, or "
        f"one of Slurm's other forms: 10 (minutes), 10:00 (minutes:seconds), 1-00 (days-hours)."
    )
