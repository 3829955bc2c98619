# How a job gets its environment, starts its command, and comes back after a time limit.
#
# A job script sources this file. It goes to the project's folder, reads the site file, activates the
# environment, and gives the script two functions:
#   run COMMAND...       once on one rank; through the site's launcher on several. Writes the log.
#   again_if_85 CODE     ends the job with CODE; if CODE is 85, the job runs once more.
#
# `submit` leaves a note for the job (lines NAME=value, the last one counts) and gives its path in
# ALLHANDS_JOB. Without a note the script runs too, with the values below. The names that a site file
# may set are explained in sites/slurm-generic.env.

say() { printf '%s\n' "[job] $*" | tee -a "${ALLHANDS_LOG:-/dev/null}" >&2; }
refuse() { say "$*"; exit 2; }
note() { [ -z "$ALLHANDS_JOB" ] || printf '%s=%q\n' "$1" "$2" >> "$ALLHANDS_JOB"; }

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2

# ---- the note, and the site ----
ALLHANDS_ARGS=()
if [ -n "$ALLHANDS_JOB" ]; then
    [ -r "$ALLHANDS_JOB" ] || refuse "The note $ALLHANDS_JOB is missing. Submit with cluster_jobs/submit."
    . "$ALLHANDS_JOB"
fi
trap 'note ALLHANDS_ENDED $?' EXIT    # `submit --wait` reads it
trap 'exit 143' TERM                  # cancelled: an end too
part=${ALLHANDS_PART:-$((${SLURM_RESTART_COUNT:-0} + 1))}

if [ -z "$ALLHANDS_SITE" ] && [ -r cluster_jobs/sites/default ]; then
    read -r ALLHANDS_SITE < cluster_jobs/sites/default
elif [ -z "$ALLHANDS_SITE" ]; then
    ALLHANDS_SITE=local
    [ -z "$SLURM_JOB_ID" ] || ALLHANDS_SITE=slurm-generic
    [ -z "$PBS_JOBID" ] || ALLHANDS_SITE=pbs-generic
fi
site_file="cluster_jobs/sites/$ALLHANDS_SITE.env"
[ -r "$site_file" ] || refuse "There is no site file $site_file. Set ALLHANDS_SITE to one of cluster_jobs/sites."
set -a    # what the site file sets, the trainer sees
. "$site_file"
set +a

job_id=${SLURM_JOB_ID:-${PBS_JOBID:-$$}}
export ALLHANDS_LEVEL=${ALLHANDS_LEVEL:-gpu}
export ALLHANDS_RUN=${ALLHANDS_RUN:-${ALLHANDS_SCRATCH:+$ALLHANDS_SCRATCH/}runs/${SLURM_JOB_NAME:-${PBS_JOBNAME:-job}}/$job_id}

# ---- the environment ----
if [ -n "$ALLHANDS_MODULES" ]; then
    [ -e /etc/profile.d/modules.sh ] && . /etc/profile.d/modules.sh
    # The names are words on purpose: several modules in one variable.
    module load $ALLHANDS_MODULES || refuse "Could not load the modules '$ALLHANDS_MODULES' of $site_file. See: module avail"
fi
if [ -n "$ALLHANDS_CONTAINER" ]; then
    :    # the container brings the environment
elif [ -n "$ALLHANDS_CONDA_ENV" ]; then
    command -v conda > /dev/null || refuse "conda was not found. Load its module in $site_file (ALLHANDS_MODULES)."
    eval "$(conda shell.bash hook)" && conda activate "$ALLHANDS_CONDA_ENV" \
        || refuse "Could not activate the conda environment '$ALLHANDS_CONDA_ENV' of $site_file."
elif [ -e .venv/bin/activate ]; then
    . .venv/bin/activate
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}    # Chainer's small matrices are slower on more threads
if [ -n "$ALLHANDS_NETWORK" ]; then
    export GLOO_SOCKET_IFNAME=$ALLHANDS_NETWORK NCCL_SOCKET_IFNAME=$ALLHANDS_NETWORK FI_TCP_IFACE=$ALLHANDS_NETWORK
fi

# ---- the command ----
run() {
    local ranks=${ALLHANDS_RANKS:-${SLURM_NTASKS:-1}} launcher=() container=()
    [ -n "$ALLHANDS_RANKS" ] || [ ! -r "$PBS_NODEFILE" ] || ranks=$(wc -l < "$PBS_NODEFILE")
    export ALLHANDS_RANKS=$ranks    # a program of several ranks checks that its world has this size
    if [ "$ranks" -gt 1 ]; then
        [ -n "$ALLHANDS_LAUNCHER" ] || refuse "$ranks ranks need a launcher. Set ALLHANDS_LAUNCHER in $site_file."
        read -ra launcher <<< "${ALLHANDS_LAUNCHER//\{ranks\}/$ranks}"
    fi
    read -ra container <<< "$ALLHANDS_CONTAINER"
    if [ -z "$ALLHANDS_CONTAINER" ] && ! command -v "$1" > /dev/null; then
        refuse "The command '$1' was not found. Make the environment first: make env (or set ALLHANDS_CONDA_ENV in $site_file)."
    fi
    say "$(date '+%F %T') job $job_id, part $part, on $(uname -n): $*"
    "${launcher[@]}" "${container[@]}" "$@" 2>&1 | tee -a "${ALLHANDS_LOG:-/dev/null}"
    return "${PIPESTATUS[0]}"
}

again_if_85() {
    local code=$1 next=$((part + 1)) most=${ALLHANDS_PARTS_MAX:-20} new
    if [ "$code" -ne 85 ]; then
        say "$(date '+%F %T') job $job_id ended with exit code $code. Run folder: $ALLHANDS_RUN"
        exit "$code"
    fi
    if [ "$next" -gt "$most" ]; then
        say "Saved, but this was part $most, the last one allowed (ALLHANDS_PARTS_MAX). Run folder: $ALLHANDS_RUN"
        exit 1
    fi
    note ALLHANDS_PART "$next"
    trap - EXIT
    if [ "$ALLHANDS_SCHEDULER" = none ] && [ -z "$ALLHANDS_JOB" ]; then
        say "Saved before the time limit. To go on: ALLHANDS_RUN=$ALLHANDS_RUN bash $0"
        exit 85
    fi
    say "Saved before the time limit in $ALLHANDS_RUN. Part $next follows."
    case "$ALLHANDS_SCHEDULER:$ALLHANDS_AGAIN" in
        none:*) exit 85 ;;    # `submit` starts the next part itself
        slurm:resubmit | pbs:*) new=$(eval "$ALLHANDS_COMMAND") && [ -n "$new" ] && note ALLHANDS_JOB_ID "$new" && exit 0 ;;
        slurm:*) scontrol requeue "$SLURM_JOB_ID" && exit 0 ;;
    esac
    say "The job could not go back into the queue. To continue, submit the same command with the run folder $ALLHANDS_RUN."
    note ALLHANDS_ENDED 1
    exit 1
}
