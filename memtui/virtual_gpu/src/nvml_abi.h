/* The part of NVML's binary interface that monitors use. */
#ifndef VGPU_NVML_ABI_H
#define VGPU_NVML_ABI_H

enum nvml_status {
    NVML_OK = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_GPU_IS_LOST = 15,
    NVML_VERSION_MISMATCH = 25,
};

#define NVML_NOT_AVAILABLE 0xffffffffffffffffull /* an unknown number of bytes */
#define NVML_NO_INSTANCE 0xffffffffu             /* not a MIG slice */

/* A versioned structure carries its own size and version in its first word. */
#define NVML_VERSION(type, number) ((unsigned)sizeof(type) | (unsigned)(number) << 24)

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct nvml_bar1_memory {
    unsigned long long total, free, used;
};

struct nvml_process_v1 {
    unsigned pid;
    unsigned long long used;
};

struct nvml_process_v2 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

struct nvml_process_detail {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_used;
};

struct nvml_process_detail_list {
    unsigned version;
    unsigned mode;
    unsigned count;
    struct nvml_process_detail *processes;
};

struct nvml_utilization {
    unsigned gpu, memory; /* percent */
};

struct nvml_process_sample {
    unsigned pid;
    unsigned long long microseconds;
    unsigned sm, memory, encoder, decoder; /* percent */
};

struct nvml_process_utilization {
    unsigned long long microseconds;
    unsigned pid;
    unsigned sm, memory, encoder, decoder, jpeg, optical_flow;
};

struct nvml_process_utilization_list {
    unsigned version;
    unsigned count;
    unsigned long long since;
    struct nvml_process_utilization *processes;
};

struct nvml_pci {
    char legacy_bus_id[16];
    unsigned domain, bus, device;
    unsigned device_id, subsystem_id;
    char bus_id[32];
};

struct nvml_temperature {
    unsigned version;
    unsigned sensor;
    int celsius;
};

#endif
