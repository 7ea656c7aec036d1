/* Stand-in for libcufft: plans without a work area. */
#include "core.h"

VGPU_API int cufftCreate(int *plan)
{
    *plan = 1;
    return 0;
}

VGPU_API int cufftXtMakePlanMany(int plan, int rank, long long *sizes, long long *in_embed, long long in_stride,
                                 long long in_distance, int in_type, long long *out_embed, long long out_stride,
                                 long long out_distance, int out_type, long long batch, size_t *work_bytes,
                                 int execution_type)
{
    (void)plan, (void)rank, (void)sizes, (void)in_embed, (void)in_stride, (void)in_distance, (void)in_type;
    (void)out_embed, (void)out_stride, (void)out_distance, (void)out_type, (void)batch, (void)execution_type;
    *work_bytes = 0;
    return 0;
}
