//! Names of fio's options and I/O engines that Reap does not implement, from fio 3.33's `--cmdhelp`
//! and `--enghelp` and the manual of later releases.

/// Options that are ignored with a warning, because they do not change which I/O is done, where,
/// how much, or in which order. Those of metadata and protection information are here because
/// namespaces with metadata are not supported, and without metadata they have no effect in fio
/// either.
#[rustfmt::skip]
pub(super) static OPTIONS: &[&str] = &[
    "allow_file_create", "allow_mounted_write", "apptag", "apptag_mask", "atomic", "block_error_percentiles", "bwavgtime", "cgroup",
    "cgroup_nodelete", "cgroup_weight", "clientname", "clocksource", "cmd_type", "cmdprio", "cmdprio_bssplit", "cmdprio_class",
    "cmdprio_hint", "cmdprio_percentage", "comm", "cont", "cpumask", "create_fsync", "create_on_open", "create_serialize",
    "data_placement", "dataplacement", "deac", "dedupe_global", "dedupe_mode", "dedupe_working_set_percentage", "disable_bw",
    "disable_bw_measurement", "disk_util", "dp_scheme", "end_syncfs", "error_dump", "exec_postrun", "exec_prerun", "exitall_on_error",
    "experimental_verify", "fadvise_hint", "fallocate", "fdp", "fdp_pli", "fdp_pli_select", "filetype", "flow_watermark", "force_async",
    "gid", "gtod_cpu", "hipri_percentage", "hugepage-size", "ignore_zone_limits", "invalidate", "io_submit_mode", "iomem", "iomem_align",
    "iopsavgtime", "ioscheduler", "job_max_open_zones", "job_start_clock_id", "libaio_vectored", "libblkio_driver",
    "libblkio_force_enable_completion_eventfd", "libblkio_num_entries", "libblkio_path", "libblkio_pre_connect_props",
    "libblkio_pre_start_props", "libblkio_queue_size", "libblkio_vectored", "libblkio_wait_mode", "libblkio_write_zeroes_on_trim",
    "lockfile", "lockmem", "log_alternate_epoch", "log_alternate_epoch_clock_id", "log_compression", "log_compression_cpus",
    "log_entries", "log_hist_coarseness", "log_hist_msec", "log_issue_time", "log_max_value", "log_offset", "log_prio",
    "log_store_compressed", "log_unix_epoch", "log_window_value", "max_open_zones", "md_per_io_size", "mem", "mem_align",
    "merge_blktrace_file", "merge_blktrace_iters", "merge_blktrace_scalars", "nice", "nonvectored", "nowait", "numa_cpu_nodes",
    "numa_mem_policy", "opendir", "openfiles", "overwrite", "per_job_logs", "pi_act", "pi_chk", "plid_select", "plids", "pre_read",
    "prio", "prioclass", "priohint", "rate_cycle", "ratecycle", "read_beyond_wp", "read_iolog_chunked", "recover_zbd_write_error",
    "refill_buffers", "rwmixcycle", "scramble_buffers", "significant_figures", "single-instance", "single_instance", "skip_bad",
    "softrandommap", "sqthread_poll_cpu", "stats", "stream_id", "sync_file_range", "thp", "trim_verify_zero", "uid", "uncached",
    "unique_filename", "unit_base", "unlink", "unlink_each_loop", "userspace_reap", "verify_async", "verify_async_cpus", "verify_bytchk",
    "verify_dump", "verify_mode", "verify_pattern_interval", "verify_policy", "verify_state_load", "verify_state_save", "verifysort",
    "verifysort_nr", "write_barrier", "write_hint", "write_hist_log", "write_zone_remainder", "xnvme_admin", "xnvme_async", "xnvme_be",
    "xnvme_dev_nsid", "xnvme_dev_subnqn", "xnvme_iovec", "xnvme_mem", "xnvme_sync", "zone_reset_frequency", "zone_reset_threshold",
    "zonecapacity",
];

/// Options that are errors, because the I/O would be different without them. With each the value
/// that has no effect, besides `0` and `none`.
#[rustfmt::skip]
pub(super) static REFUSED: &[(&str, &str)] = &[
    ("allrandrepeat", ""), ("blocksize_unaligned", ""), ("bs_is_seq_rand", ""), ("bs_unaligned", ""), ("buffer_compress_chunk", ""),
    ("buffer_compress_percentage", ""), ("buffer_pattern", ""), ("create_only", ""), ("dedupe_percentage", ""), ("exit_what", "group"),
    ("file_append", ""), ("file_service_type", "roundrobin"), ("fill_device", ""), ("fill_fs", ""), ("flow", ""), ("flow_id", ""),
    ("flow_sleep", ""), ("ignore_error", ""), ("kb_base", "1024"), ("latency_percentile", ""), ("latency_run", ""), ("latency_target", ""),
    ("latency_window", ""), ("max_latency", ""), ("num_range", "1"), ("offset_align", ""), ("percentage_random", "100"),
    ("percentage_sequential", ""), ("profile", ""), ("ramp_size", ""), ("random_sequence_stride", ""), ("rate_ignore_thinktime", ""),
    ("rate_iops_min", ""), ("rate_min", ""), ("ratemin", ""), ("readfua", ""), ("replay_align", ""), ("replay_redirect", ""),
    ("replay_scale", "1"), ("replay_skip", ""), ("replay_time_scale", "100"), ("rw_sequencer", "sequential"), ("sg_write_mode", "write"),
    ("sprandom", ""), ("ss", ""), ("ss_dur", ""), ("ss_interval", ""), ("ss_ramp", ""), ("steadystate", ""),
    ("steadystate_check_interval", ""), ("steadystate_duration", ""), ("steadystate_ramp_time", ""), ("thinkcycles", ""),
    ("thinktime_blocks_type", "complete"), ("thinktime_iotime", ""), ("trim_backlog", ""), ("trim_backlog_batch", ""),
    ("trim_percentage", ""), ("verify_write_sequence", "1"), ("wait_for", ""), ("write_mode", "write"), ("writefua", ""),
    ("zero_buffers", ""), ("zonemode", ""), ("zonerange", ""), ("zonesize", ""), ("zoneskip", ""),
];

/// fio's I/O engines for block I/O.
#[rustfmt::skip]
pub(super) static ENGINES: &[&str] = &[
    "cpp_null", "mmap", "sync", "psync", "vsync", "pvsync", "pvsync2", "null", "posixaio", "splice", "gfapi", "gfapi_async", "mtd", "sg",
    "io_uring", "io_uring_cmd", "nbd", "libaio", "rados", "rbd", "http", "pmemblk", "dev-dax", "libpmem", "libiscsi", "libzbc", "libhdfs",
    "libcufile", "libhipfile", "libblkio", "libnfs", "nfs", "dfs", "ime_psync", "ime_psyncv", "ime_aio", "windowsaio", "solarisaio",
    "guasi", "xnvme", "binject", "syslet-rw", "external",
];

/// fio's engines that do no block I/O.
#[rustfmt::skip]
pub(super) static OTHER_ENGINES: [&str; 15] = [
    "cpuio", "exec", "net", "netsplice", "rdma", "filecreate", "filestat", "filedelete", "dircreate", "dirstat", "dirdelete",
    "ftruncate", "falloc", "e4defrag", "page_fault",
];
