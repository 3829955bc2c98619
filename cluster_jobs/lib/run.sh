# How a job gets its environment, starts its command, and comes back after a time limit.
#
# A job script sources this file. It goes to the project's folder, reads the site file, activates the
# environment, and gives the script these functions:
#   run COMMAND...       once on one rank; through the site's launcher on several. Writes the log.
#   again_if_85 CODE     ends the job with CODE; if CODE is 85, the job runs once more.
#   say TEXT...          writes a line into the log.
#   at_end 'COMMAND'     runs COMMAND when the job ends, however it ends (not after a kill).
#
# The command finds in its environment: ALLHANDS_RANKS (the size that its world must have),
# ALLHANDS_NODES, ALLHANDS_RUN (its folder), and MASTER_ADDR and MASTER_PORT, where ranks of PyTorch
# can meet. Its rank comes from the launcher.
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
endings=()
at_end() { endings+=("$1"); }
ended() {    # the exit code; `submit --wait` reads it in the note
    local ending
    trap '' TERM INT HUP    # nothing cuts the end off
    for ending in "${endings[@]}"; do eval "$ending"; done
    [ "$1" = again ] || note ALLHANDS_ENDED "$1"
}
trap 'ended $?' EXIT
trap 'exit 143' TERM    # cancelled: an end too
note ALLHANDS_STARTED "$(date +%s)"
part=${ALLHANDS_PART:-$((${SLURM_RESTART_COUNT:-0} + 1))}

if [ -z "$ALLHANDS_SITE" ] && [ -r cluster_jobs/sites/default ]; then
    read -r ALLHANDS_SITE < cluster_jobs/sites/default
elif [ -z "$ALLHANDS_SITE" ]; then
    ALLHANDS_SITE=local
    [ -z "$SLURM_JOB_ID" ] || ALLHANDS_SITE=slurm-generic
    [ -z "$PBS_JOBID" ] || ALLHANDS_SITE=pbs-generic
    [ -z "$SGE_O_WORKDIR" ] || ALLHANDS_SITE=sge-generic
fi
site_file="cluster_jobs/sites/$ALLHANDS_SITE.env"
[ -r "$site_file" ] || refuse "There is no site file $site_file. Set ALLHANDS_SITE to one of cluster_jobs/sites."
# PBS sets it to the cores of all ranks of a node, and no rank may take them all. Others are wishes.
[ -z "$PBS_JOBID" ] || [ "$OMP_NUM_THREADS" != "$NCPUS" ] || unset OMP_NUM_THREADS
set -a    # what the site file sets, the trainer sees
. "$site_file"
set +a

# ---- what the scheduler says: the job's id and name, its nodes and ranks ----
case "$ALLHANDS_SCHEDULER" in    # each line of `hosts` is a node's name
    slurm)
        job_id=$SLURM_JOB_ID job_name=$SLURM_JOB_NAME granted=$SLURM_NTASKS
        hosts() { scontrol show hostnames "$SLURM_JOB_NODELIST"; } ;;
    pbs)
        job_id=$PBS_JOBID job_name=$PBS_JOBNAME
        hosts() { sort -u "$PBS_NODEFILE"; }
        head_host() { head -n 1 "$PBS_NODEFILE"; }
        [ ! -r "$PBS_NODEFILE" ] || granted=$(wc -l < "$PBS_NODEFILE") ;;
    sge)
        job_id=$JOB_ID job_name=$JOB_NAME granted=$NSLOTS
        hosts() { cut -d ' ' -f 1 "$PE_HOSTFILE"; } ;;
    pjm)
        job_id=$PJM_JOBID job_name=$PJM_JOBNAME granted=$PJM_MPI_PROC
        hosts() { sed 's/[ :].*//' "$PJM_O_NODEINF" | sort -u; }
        head_host() { head -n 1 "$PJM_O_NODEINF" | sed 's/[ :].*//'; } ;;
    *)
        job_id=${SLURM_JOB_ID:-$PBS_JOBID} job_name=${SLURM_JOB_NAME:-$PBS_JOBNAME}
        hosts() { echo localhost; } ;;
esac
declare -F head_host > /dev/null || head_host() { hosts | head -n 1; }
job_id=${job_id:-$$}
export ALLHANDS_LEVEL=${ALLHANDS_LEVEL:-gpu}
export ALLHANDS_RANKS=${ALLHANDS_RANKS:-${granted:-1}}    # a program checks that its world has this size
export ALLHANDS_NODES=${ALLHANDS_NODES:-$(hosts 2> /dev/null | grep -c .)}
[ "$ALLHANDS_NODES" -gt 0 ] || ALLHANDS_NODES=1
[ "${granted:-$ALLHANDS_RANKS}" -ge "$ALLHANDS_RANKS" ] \
    || say "The scheduler gave room for $granted ranks, and $ALLHANDS_RANKS are wanted. Look at ALLHANDS_SHAPE_OPTION in $site_file."
ranks_per_node=$((ALLHANDS_RANKS / ALLHANDS_NODES))
export ALLHANDS_RUN=${ALLHANDS_RUN:-${ALLHANDS_SCRATCH:+$ALLHANDS_SCRATCH/}runs/${ALLHANDS_NAME:-${job_name:-job}}/$job_id}

# Where ranks that need an address can meet: the first node, and a port of this job's own.
MASTER_ADDR=$(head_host 2> /dev/null)
export MASTER_ADDR=${MASTER_ADDR:-localhost}
digits=${job_id%%.*}           # without the server's name
digits=${digits//[!0-9]/}
export MASTER_PORT=$((20000 + 10#0${digits:0:18} % 12000))    # 10#: a leading 0 is not octal

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
if [ -n "$SLURM_CPUS_PER_TASK" ]; then
    export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK    # since 22.05 srun does not take it over
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}    # Chainer's small matrices are slower on more threads
if [ -n "$ALLHANDS_NETWORK" ]; then
    # PyTorch on CPUs, NCCL, MPICH over TCP, Open MPI over TCP.
    export GLOO_SOCKET_IFNAME=$ALLHANDS_NETWORK NCCL_SOCKET_IFNAME=$ALLHANDS_NETWORK
    export FI_TCP_IFACE=$ALLHANDS_NETWORK OMPI_MCA_btl_tcp_if_include=$ALLHANDS_NETWORK
    # UCX, which MPICH from a wheel sends through, would share large messages out over all networks.
    # Where there is RDMA below the interface it finds the best way by itself.
    interface=/sys/class/net/$ALLHANDS_NETWORK
    if [ -e "$interface" ] && [ ! -e "$interface/device/infiniband" ]; then
        export UCX_NET_DEVICES=${UCX_NET_DEVICES:-$ALLHANDS_NETWORK}
    fi
fi

# ---- the command ----
run() {
    local launcher=() container=() words=$ALLHANDS_LAUNCHER
    if [ "$ALLHANDS_RANKS" -gt 1 ]; then
        [ -n "$words" ] || refuse "$ALLHANDS_RANKS ranks need a launcher. Set ALLHANDS_LAUNCHER in $site_file."
        words=${words//\{ranks\}/$ALLHANDS_RANKS}
        words=${words//\{nodes\}/$ALLHANDS_NODES}
        read -ra launcher <<< "${words//\{ranks_per_node\}/$ranks_per_node}"
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
    trap 'ended again' EXIT
    if [ "$ALLHANDS_SCHEDULER" = none ] && [ -z "$ALLHANDS_JOB" ]; then
        say "Saved before the time limit. To go on: ALLHANDS_RUN=$ALLHANDS_RUN bash $0"
        exit 85
    fi
    say "Saved before the time limit in $ALLHANDS_RUN. Part $next follows."
    case "$ALLHANDS_SCHEDULER:$ALLHANDS_AGAIN" in
        none:*) exit 85 ;;    # `submit` starts the next part itself
        slurm:resubmit | pbs:* | sge:* | pjm:*) resubmitted && exit 0 ;;
        slurm:*) scontrol requeue "$SLURM_JOB_ID" && exit 0 ;;
    esac
    say "The job could not go back into the queue. What was saved is in $ALLHANDS_RUN."
    if [ -n "$ALLHANDS_COMMAND" ]; then
        say "To continue, on the login node: cd '$PWD' && $ALLHANDS_COMMAND"
    fi
    trap 'ended 1' EXIT
    exit 1
}

# The same command once more. Its answer names the new job: 12, 12.server, 12;cluster, or in words.
resubmitted() {
    local new
    [ -n "$ALLHANDS_COMMAND" ] && new=$(eval "$ALLHANDS_COMMAND") || return 1
    new=${new##*$'\n'}    # after what else the site prints
    case "$ALLHANDS_SCHEDULER" in
        pbs) new=${new%% *} ;;
        *) new=$(sed 's/.*[Jj]ob //; s/[^0-9].*//' <<< "$new") ;;
    esac
    [ -n "$new" ] && note ALLHANDS_JOB_ID "$new"
}
