/* Stand-in for libcudnn: the device memory of its kernels, which CUDA loads when they are first used. */
#include "core.h"
#include "cudnn.h"

/* Beyond the convolutions': see the README. */
#define NORMALISATION_LOAD (40ull << 20)

static int charge(int physical, enum cudnn_kernels kernels, int *charged_now)
{
    static uint32_t charged[2]; /* by kind of kernels, a bit for each device */
    static unsigned generation;
    uint64_t bytes = vgpu_settings()->cudnn_load;

    if (generation != vgpu_fork_generation()) {
        charged[0] = charged[1] = 0;
        generation = vgpu_fork_generation();
    }
    if (charged[kernels] >> physical & 1)
        return 0;
    if (bytes && kernels == KERNELS_NORMALISATION)
        bytes = NORMALISATION_LOAD;
    if (bytes && vgpu_take(physical, bytes))
        return CUDNN_INTERNAL_ERROR;
    charged[kernels] |= 1u << physical;
    *charged_now = bytes != 0;
    return 0;
}

int cudnn_load(enum cudnn_kernels kernels)
{
    int physical = vgpu_physical(vgpu_current_ordinal());
    int charged_now = 0;

    if (physical < 0)
        return CUDNN_INTERNAL_ERROR;
    vgpu_lock();
    int status = charge(physical, kernels, &charged_now);
    vgpu_unlock();
    if (charged_now)
        vgpu_note("estimated", "cuDNN's kernels");
    return status;
}
