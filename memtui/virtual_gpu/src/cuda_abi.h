/* The small part of the CUDA 12 and CUDA 13 binary interface that the stand-ins
 * answer to, so that no CUDA toolkit is needed to build them.  The builder
 * passes VGPU_CUDA_VERSION (12040 is CUDA 12.4) of the torch it builds for.
 * Handles are opaque pointers and enumerations plain ints, as in the real ABI. */
#ifndef VGPU_CUDA_ABI_H
#define VGPU_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifndef VGPU_CUDA_VERSION
#error "pass -DVGPU_CUDA_VERSION=<1000 * major + 10 * minor>"
#endif

/* The runtime and the driver number these alike. */
enum cuda_status {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_INVALID_CONFIGURATION = 9,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_NOT_FOUND = 500,
    CUDA_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_NOT_SUPPORTED = 801,
};

/* Device attributes; again the same numbers in the runtime and the driver. */
enum cuda_attribute {
    ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    ATTRIBUTE_MAX_BLOCK_X = 2,
    ATTRIBUTE_MAX_BLOCK_Y = 3,
    ATTRIBUTE_MAX_BLOCK_Z = 4,
    ATTRIBUTE_MAX_GRID_X = 5,
    ATTRIBUTE_MAX_GRID_Y = 6,
    ATTRIBUTE_MAX_GRID_Z = 7,
    ATTRIBUTE_SHARED_MEMORY_PER_BLOCK = 8,
    ATTRIBUTE_CONSTANT_MEMORY = 9,
    ATTRIBUTE_WARP_SIZE = 10,
    ATTRIBUTE_REGISTERS_PER_BLOCK = 12,
    ATTRIBUTE_CLOCK_KHZ = 13,
    ATTRIBUTE_TEXTURE_ALIGNMENT = 14,
    ATTRIBUTE_MULTIPROCESSORS = 16,
    ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
    ATTRIBUTE_CONCURRENT_KERNELS = 31,
    ATTRIBUTE_PCI_BUS = 33,
    ATTRIBUTE_MEMORY_CLOCK_KHZ = 36,
    ATTRIBUTE_MEMORY_BUS_WIDTH = 37,
    ATTRIBUTE_L2_CACHE_BYTES = 38,
    ATTRIBUTE_THREADS_PER_MULTIPROCESSOR = 39,
    ATTRIBUTE_ASYNC_ENGINES = 40,
    ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    ATTRIBUTE_CC_MAJOR = 75,
    ATTRIBUTE_CC_MINOR = 76,
    ATTRIBUTE_STREAM_PRIORITIES = 78,
    ATTRIBUTE_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    ATTRIBUTE_REGISTERS_PER_MULTIPROCESSOR = 82,
    ATTRIBUTE_MANAGED_MEMORY = 83,
    ATTRIBUTE_COMPUTE_PREEMPTION = 90,
    ATTRIBUTE_COOPERATIVE_LAUNCH = 95,
    ATTRIBUTE_SHARED_MEMORY_OPT_IN = 97,
    ATTRIBUTE_HOST_REGISTER = 99,
    ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT = 102,
    ATTRIBUTE_POSIX_FILE_HANDLES = 103,
    ATTRIBUTE_BLOCKS_PER_MULTIPROCESSOR = 106,
    ATTRIBUTE_SHARED_MEMORY_RESERVED = 111,
    ATTRIBUTE_MEMORY_POOLS = 115,
    ATTRIBUTE_HOST_NUMA = 134,
};

struct cuda_dim3 {
    unsigned x, y, z;
};

/* What cudaGetDeviceProperties fills in.  CUDA 13 dropped eight ints of CUDA 12
 * and named four of the reserved ones; texture and surface limits, which no
 * allocator asks for, are one block here. */
struct cuda_device_properties {
    char name[256];
    unsigned char uuid[16];
    char luid[8];
    unsigned luid_node_mask;
    size_t total_memory;
    size_t shared_memory_per_block;
    int registers_per_block;
    int warp_size;
    size_t memory_pitch;
    int max_threads_per_block;
    int max_block[3];
    int max_grid[3];
#if VGPU_CUDA_VERSION < 13000
    int clock_khz;
#endif
    size_t constant_memory;
    int cc_major, cc_minor;
    size_t texture_alignment;
    size_t texture_pitch_alignment;
#if VGPU_CUDA_VERSION < 13000
    int device_overlap;
#endif
    int multiprocessors;
#if VGPU_CUDA_VERSION < 13000
    int kernel_timeout;
#endif
    int integrated;
    int can_map_host_memory;
#if VGPU_CUDA_VERSION < 13000
    int compute_mode;
    int texture_and_surface_limits[40];
#else
    int texture_and_surface_limits[39];
#endif
    size_t surface_alignment;
    int concurrent_kernels;
    int ecc;
    int pci_bus, pci_device, pci_domain;
    int tcc_driver;
    int async_engines;
    int unified_addressing;
#if VGPU_CUDA_VERSION < 13000
    int memory_clock_khz;
#endif
    int memory_bus_width;
    int l2_cache_bytes;
    int persisting_l2_cache_bytes;
    int threads_per_multiprocessor;
    int stream_priorities;
    int global_l1_cache, local_l1_cache;
    size_t shared_memory_per_multiprocessor;
    int registers_per_multiprocessor;
    int managed_memory;
    int multi_gpu_board, multi_gpu_board_group;
    int host_native_atomics;
#if VGPU_CUDA_VERSION < 13000
    int single_to_double_ratio;
#endif
    int pageable_memory_access;
    int concurrent_managed_access;
    int compute_preemption;
    int host_pointer_for_registered;
    int cooperative_launch;
#if VGPU_CUDA_VERSION < 13000
    int cooperative_multi_device_launch;
#endif
    size_t shared_memory_opt_in;
    int pageable_uses_host_page_tables;
    int direct_managed_from_host;
    int blocks_per_multiprocessor;
    int access_policy_window;
    size_t shared_memory_reserved;
    int host_register;
    int sparse_arrays;
    int host_register_read_only;
    int timeline_semaphores;
    int memory_pools;
    int rdma;
    unsigned rdma_flush_options;
    int rdma_write_order;
    unsigned pool_handle_types;
    int deferred_mapping;
    int ipc_events;
    int cluster_launch;
    int unified_function_pointers;
#if VGPU_CUDA_VERSION < 13000
    int reserved[63];
#else
    int numa_config, numa_id;
    int mps;
    int host_numa_id;
    unsigned pci_device_and_vendor, pci_subsystem;
    int host_numa_multinode_ipc;
    int reserved[56];
#endif
};

_Static_assert(sizeof(void *) == 8, "the layouts are those of 64-bit machines");
_Static_assert(sizeof(struct cuda_device_properties) == (VGPU_CUDA_VERSION < 13000 ? 1032 : 1008),
               "cudaDeviceProp");

/* Attributes of a pool: what it holds, what of it is in use, and the highest of each. */
enum { POOL_RESERVED = 5, POOL_RESERVED_HIGH = 6, POOL_USED = 7, POOL_USED_HIGH = 8 };

enum { MEMORY_UNREGISTERED = 0, MEMORY_HOST = 1, MEMORY_DEVICE = 2 };

/* CUDA 13 added reserved words at the end. */
struct cuda_pointer_attributes {
    int type;
    int device;
    void *device_pointer;
    void *host_pointer;
#if VGPU_CUDA_VERSION >= 13000
    long reserved[8];
#endif
};

struct cuda_function_attributes {
    size_t shared_bytes, constant_bytes, local_bytes;
    int max_threads_per_block;
    int registers;
    int ptx_version, binary_version;
    int cache_mode;
    int max_dynamic_shared_bytes;
    int preferred_carveout;
    int cluster_must_be_set;
    int cluster_width, cluster_height, cluster_depth;
    int cluster_policy;
    int non_portable_cluster;
    int reserved[16];
};

_Static_assert(sizeof(struct cuda_function_attributes) == 144, "cudaFuncAttributes");

struct cuda_launch_config {
    struct cuda_dim3 grid, block;
    size_t dynamic_shared_bytes;
    void *stream;
    void *attributes;
    unsigned attribute_count;
};

/* Driver: where a piece of physical memory is asked for. */
struct cu_location {
    int type;
    int id;
};

struct cu_allocation_properties {
    int type;
    int handle_types;
    struct cu_location location;
    void *win32_metadata;
    unsigned char compression, rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
};

_Static_assert(sizeof(struct cu_allocation_properties) == 32, "CUmemAllocationProp");

enum { CU_PINNED = 1, CU_ON_DEVICE = 1 };

#endif
