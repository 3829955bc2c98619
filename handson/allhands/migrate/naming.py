"""Which names tell ranks, communicators and collectives? Data that the walk and the rules share.

A name counts only where it must: `rank` may be a tensor's. Sources: the interfaces of ChainerMN
7.8, torch.distributed 2.x, Horovod and mpi4py, and the environments of torchrun, Slurm, Open MPI,
MPICH and Intel MPI.
"""

import re

WORLD_RANK_VARIABLES = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}
LOCAL_RANK_VARIABLES = {
    *("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
    *("MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALNRANKS_RANK"),
}
SIZE_VARIABLES = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}
SOME_RANK = re.compile(r"(?:^|[._])(?:global_|world_|my_|mpi_|node_|proc_)?(?:rank|RANK)$")
LOCAL_RANK = re.compile(r"(?:^|[._])(?:local_?rank|LOCAL_RANK|intra_rank|localrank)$")
SIZE = re.compile(r"(?:^|[._])(?:world_?size|WORLD_SIZE|n_?ranks|n_?procs|num_(?:ranks|replicas))$")
FIRST_TEST = re.compile(
    r"(?:^|[._])_?(?:is_?|am_?)?(?:main|master|chief|rank_?0|rank_?zero|root|primary|first_rank"
    r"|global_zero|mainproc)(?:_?(?:process|proc|rank|node|worker|rank_?0))?$",
    re.IGNORECASE,
)
ONE_RANK_ONLY = re.compile(  # decorators: the function runs on one rank
    r"rank_?(?:zero|0)|(?:main|master|chief)(?:_process)?_only|only_(?:on_)?(?:main|master|rank)"
    r"|on_(?:local_)?main_process|run_on_(?:main|master)",
    re.IGNORECASE,
)
NO_RANKS = {"dim", "ndim", "ndimension", "matrix_rank", "range", "enumerate", "argsort"}
COMMUNICATOR = re.compile(r"(?:^|[._])(?:\w*_)?(?:comm|COMM_WORLD|communicator)\d?$")
PART = re.compile(r"(?:inter|intra|sub|local|node|row|col|data|model|tp|dp|pp)_?(?:\w*_)?comm")
TORCH_DISTRIBUTED = "torch.distributed"
HOROVOD = "horovod"
TORCH_COLLECTIVES = {
    *("all_reduce", "broadcast", "barrier", "all_gather", "reduce", "gather", "scatter"),
    *("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list"),
    *("reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_gather_into_tensor"),
    *("monitored_barrier", "new_group", "all_to_all_single"),
}
HOROVOD_COLLECTIVES = {
    *("allreduce", "allreduce_", "allgather", "broadcast", "broadcast_", "broadcast_object"),
    *("broadcast_parameters", "broadcast_optimizer_state", "barrier", "alltoall", "reducescatter"),
    *("broadcast_variables", "allgather_object"),
}
COMM_COLLECTIVES = {
    *("bcast", "bcast_obj", "bcast_data", "allreduce", "allreduce_obj", "allreduce_grad"),
    *("multi_node_mean_grad", "gather", "gather_obj", "allgather", "allgather_obj", "scatter"),
    *("scatter_obj", "alltoall", "reduce", "barrier", "split", "Split", "Dup"),
    *("Barrier", "Bcast", "Allreduce", "Gather", "Gatherv", "Allgather", "Allgatherv", "Scatter"),
    *("Scatterv", "Reduce", "Alltoall", "Alltoallv", "multi_node_mean"),
}
CHAINERMN_COLLECTIVES = {"scatter_dataset", "scatter_index"}
SUBGROUPS = {"split", "Split", "new_group", "new_subgroups", "split_group", "Create_group"}
REDUCTIONS = {
    *("all_reduce", "reduce", "all_gather", "all_gather_object", "gather_object", "gather"),
    *("all_gather_into_tensor", "allreduce", "allgather", "allreduce_obj", "gather_obj"),
    *("allgather_obj", "Allreduce", "Reduce", "Gather", "allreduce_", "reduce_tensor"),
    *("reduce_dict", "reduce_mean", "metric_average", "synchronize_between_processes"),
}
DDP = {"DistributedDataParallel"}
SHARDED = {"FullyShardedDataParallel", "fully_shard", "parallelize_module", "FSDP"}
WRAPPERS = {
    *DDP,
    *SHARDED,
    *("ZeroRedundancyOptimizer", "replicate", "DistributedOptimizer", "distributed_optimizer"),
    *("PipelineStage", "ScheduleGPipe", "Schedule1F1B", "DistributedModelParallel", "PostLocalSGD"),
}
STARTED_BY = {  # frameworks that make the ranks, and most edits, themselves: module -> name
    "accelerate": "Accelerate",
    "pytorch_lightning": "Lightning",
    "lightning": "Lightning",
    "deepspeed": "DeepSpeed",
    "ignite.distributed": "Ignite",
    "composer": "Composer",
    "colossalai": "Colossal-AI",
    "transformers.Trainer": "transformers.Trainer",
    "ray.train": "Ray",
}
MANAGERS = (  # what seems missing may be theirs
    *STARTED_BY,
    *("ignite", "ray", "torch_xla", "fairscale", "megatron", "monarch", "torchrec", "apex"),
    *("torchx", "tensorflow", "mxnet", "byteps"),
)
SHARDERS = {
    *("DistributedSampler", "ElasticDistributedSampler", "scatter_dataset", "scatter_index"),
    *("split_dataset_by_node", "split_by_node", "DistributedWeightedSampler", "get_n_items"),
    *("create_empty_dataset", "create_multi_node_iterator", "DistributedProxySampler", "shard"),
    *("DistributedBatchSampler", "num_shards", "shard_id", "ElasticSampler"),
}
SAME_BATCH = {  # ChainerMN with one batch for all ranks: the model itself is divided
    *("create_multi_node_iterator", "create_empty_dataset", "MultiNodeChainList"),
}
MODEL_PARALLEL = {
    *("MultiNodeChainList", "parallelize_module", "PipelineStage", "rpc_async", "rpc_sync"),
    *("init_rpc", "remote", "isend", "irecv", "send", "recv", "MultiNodeBatchNormalization_"),
}
