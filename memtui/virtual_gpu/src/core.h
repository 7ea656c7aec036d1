/* State shared by the stand-ins for libcudart, libcuda, libnvidia-ml and the
 * math libraries.  Nothing here talks to hardware: a device is a byte counter
 * with a limit, and "device memory" is host address space that is never
 * committed until somebody touches it. */
#ifndef VGPU_CORE_H
#define VGPU_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define VGPU_API __attribute__((visibility("default")))

#define VGPU_MAX_DEVICES 16
#define VGPU_MAX_PROCESSES 256

/* The driver hands out device memory in pages of this size. */
#define VGPU_PAGE (2ull << 20)

/* ---- settings.c: what the environment asks for ------------------------- */

struct vgpu_settings {
    int device_count;
    uint64_t capacity[VGPU_MAX_DEVICES]; /* bytes, as printed on the box */
    uint64_t driver_reserved;            /* bytes of each device that nobody can have */
    uint64_t context;                    /* bytes charged once per process and device */
    uint64_t copy_max;                   /* longest copy to a device that is really made */
    int64_t cudnn_workspace;             /* bytes of every cuDNN convolution's workspace; -1: estimated */
    uint64_t cudnn_load;                 /* bytes charged once per process and device at the first convolution */
    int64_t nccl_buffers;                /* bytes of a communicator's buffers; -1: as measured */
    double selected;                     /* share of its elements that nonzero() finds */
    int cc_major, cc_minor;
    int multiprocessors;
    int report, trace;
    const char *report_file; /* prefix of the reports' paths, or NULL */
    const char *name;
};

const struct vgpu_settings *vgpu_settings(void);
int settings_follow(void);            /* 1 where they were of other devices than the environment names, and read again */
int vgpu_visible_count(void);
int vgpu_physical(int ordinal);       /* CUDA ordinal -> physical index, or -1 */
int vgpu_ordinal(int physical);       /* physical index -> CUDA ordinal, or -1 */
uint64_t vgpu_usable(int physical);   /* capacity less the driver's own share */
void vgpu_uuid(int physical, unsigned char out[16]);
void vgpu_uuid_text(int physical, char *out, size_t size); /* "GPU-..." */

/* ---- usage.c: bytes in use, shared between processes through VGPU_SHM --- */

struct vgpu_usage {
    pid_t pid;
    uint64_t bytes;
};

int vgpu_take(int physical, uint64_t bytes); /* 0, or -1 where it does not fit */
void vgpu_give(int physical, uint64_t bytes);
int vgpu_enter_context(int physical);        /* first use of a device: 0, or -1 where it does not fit */
int vgpu_has_context(int physical);
uint64_t vgpu_used(int physical);            /* by every live process */
int vgpu_users(int physical, struct vgpu_usage *out, int room); /* returns how many there are */
int vgpu_current_ordinal(void);              /* the calling thread's current device */
void vgpu_set_current_ordinal(int ordinal);
void vgpu_follow(void);                      /* NVML alone: on to the devices that the environment names by now */

/* ---- ranges.c: which addresses are device or pinned host memory -------- */

/* Shared: another process's device memory. */
enum vgpu_kind { VGPU_DEVICE = 1, VGPU_HOST, VGPU_RESERVED, VGPU_SHARED };

struct vgpu_range {
    uintptr_t base;
    size_t size;
    enum vgpu_kind kind;
    int device; /* physical index */
};

uint64_t vgpu_whole_pages(uint64_t bytes);
void *vgpu_map(size_t size, int writable);
void vgpu_unmap(void *address, size_t size);
int vgpu_range_add(void *address, size_t size, enum vgpu_kind kind, int device); /* 0 or -1 */
int vgpu_range_find(const void *address, struct vgpu_range *out);
int vgpu_range_remove(const void *address, struct vgpu_range *out);

/* ---- copies.c: which bytes mean something ------------------------------ */

void vgpu_kernel_launched(void);
void vgpu_copy(void *to, const void *from, size_t size);
void vgpu_copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height);
void vgpu_fill(void *to, int value, size_t size);
void vgpu_select_from(uint64_t elements); /* nonzero() counts among so many: its next read is answered */
uint64_t vgpu_zero_reads(void); /* host reads of computed bytes so far */

/* ---- report_file.c: what a run depended on ------------------------------ */

/* Kinds: "estimated" (a figure that is only modelled), "refused" (a call that
 * is not), "host read" (zeros in place of computed values). */
void vgpu_note(const char *kind, const char *name);

/* ---- process.c: one lock for all in-process state, fork, messages ------ */

void vgpu_lock(void);
void vgpu_unlock(void);
unsigned vgpu_fork_generation(void); /* changes in a forked child */
void vgpu_kernel_took(uint64_t nanoseconds); /* what events count beside the host's own time */
uint64_t vgpu_kernels_took(void);             /* nanoseconds so far */
void vgpu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void vgpu_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
long vgpu_nothing(const char *name);          /* body of a generated stub with nothing to do */
long vgpu_refuse(const char *name, int code); /* body of one that would have to hand something back */

#endif
