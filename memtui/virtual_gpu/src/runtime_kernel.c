/* Stand-in for libcudart: kernels.  A launch is checked for a legal shape and
 * then dropped. */
#include "runtime.h"

#include <string.h>

/* ---- registration, and what the <<<>>> syntax compiles to --------------------- */

static __thread struct {
    struct cuda_dim3 grid, block;
    size_t shared_bytes;
    void *stream;
} pending;

VGPU_API void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;

    (void)binary;
    return &handle;
}

VGPU_API char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

VGPU_API unsigned __cudaPushCallConfiguration(struct cuda_dim3 grid, struct cuda_dim3 block, size_t shared_bytes,
                                              void *stream)
{
    pending.grid = grid;
    pending.block = block;
    pending.shared_bytes = shared_bytes;
    pending.stream = stream;
    return 0;
}

VGPU_API int __cudaPopCallConfiguration(struct cuda_dim3 *grid, struct cuda_dim3 *block, size_t *shared_bytes,
                                        void **stream)
{
    *grid = pending.grid;
    *block = pending.block;
    *shared_bytes = pending.shared_bytes;
    *stream = pending.stream;
    return CUDA_OK;
}

VGPU_API int __cudaGetKernel(void **kernel, const void *function)
{
    *kernel = (void *)function;
    return CUDA_OK;
}

/* ---- launches --------------------------------------------------------------------- */

static int launch(struct cuda_dim3 grid, struct cuda_dim3 block)
{
    int physical, status = runtime_device(&physical);

    if (status != CUDA_OK)
        return status;
    vgpu_kernel_launched();
    unsigned long long threads = (unsigned long long)block.x * block.y * block.z;
    int legal = threads > 0 && threads <= 1024 && block.z <= 64 && grid.x > 0 && grid.x <= 0x7fffffffu && grid.y > 0
                && grid.y <= 65535 && grid.z > 0 && grid.z <= 65535;
    return runtime_fail(legal ? CUDA_OK : CUDA_INVALID_CONFIGURATION);
}

VGPU_API int cudaLaunchKernel(const void *function, struct cuda_dim3 grid, struct cuda_dim3 block, void **arguments,
                              size_t shared_bytes, void *stream)
{
    (void)shared_bytes;
    (void)stream;
    runtime_note_selection(function, arguments);
    return launch(grid, block);
}

VGPU_API int __cudaLaunchKernel(void *kernel, struct cuda_dim3 grid, struct cuda_dim3 block, void **arguments,
                                size_t shared_bytes, void *stream)
{
    return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

VGPU_API int cudaLaunchCooperativeKernel(const void *function, struct cuda_dim3 grid, struct cuda_dim3 block,
                                         void **arguments, size_t shared_bytes, void *stream)
{
    return cudaLaunchKernel(function, grid, block, arguments, shared_bytes, stream);
}

VGPU_API int cudaLaunchKernelExC(const struct cuda_launch_config *config, const void *function, void **arguments)
{
    runtime_note_selection(function, arguments);
    return launch(config->grid, config->block);
}

/* ---- what launches are sized by ------------------------------------------------------ */

/* Torch's kernels are built for some capabilities; a device runs those of the newest one that is no newer
 * than itself: 8.9 those of 8.6.  CUB looks for what it was built for by this number. */
static int built_for(int cc)
{
    static const int built[] = { 50, 60, 70, 75, 80, 86, 90, 100, 120 };
    int found = built[0];

    for (size_t i = 0; i < sizeof built / sizeof *built; i++) {
        if (built[i] <= cc)
            found = built[i];
    }
    return found;
}

VGPU_API int cudaFuncGetAttributes(struct cuda_function_attributes *attributes, const void *function)
{
    const struct vgpu_settings *s = vgpu_settings();

    (void)function;
    memset(attributes, 0, sizeof *attributes);
    attributes->max_threads_per_block = 1024;
    attributes->registers = 32;
    attributes->ptx_version = attributes->binary_version = built_for(10 * s->cc_major + s->cc_minor);
    attributes->max_dynamic_shared_bytes = 48 << 10;
    return CUDA_OK;
}

VGPU_API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                    size_t shared_bytes, unsigned flags)
{
    (void)function;
    (void)shared_bytes;
    (void)flags;
    *blocks = threads > 0 && threads < 1536 ? 1536 / threads : 1;
    return CUDA_OK;
}

VGPU_API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                           size_t shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared_bytes, 0);
}

/* ---- libraries of kernels (CUDA 12.8 and later) ---------------------------------------- */

VGPU_API int cudaLibraryLoadData(void **library, const void *code, int *jit_options, void **jit_values,
                                 unsigned jit_count, int *options, void **values, unsigned count)
{
    (void)code;
    (void)jit_options;
    (void)jit_values;
    (void)jit_count;
    (void)options;
    (void)values;
    (void)count;
    *library = (void *)(uintptr_t)0x2000;
    return CUDA_OK;
}

VGPU_API int cudaLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library;
    *kernel = (void *)name;
    return CUDA_OK;
}
