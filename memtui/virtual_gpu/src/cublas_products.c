/* Stand-in for libcublas: products on tensor cores.  Nothing is computed, but
 * torch's compiler times a product beside one whose matrices it has padded, and
 * keeps what was faster, which decides sizes of memory.
 *
 * Known of times: rows that do not lie on 16 bytes are not copied whole into
 * tensor cores, and cost about as much again (NVIDIA, "Matrix Multiplication
 * Background User's Guide": alignment).  Everything else takes no time of the
 * device's. */
#include "core.h"

/* cudaDataType of the two halves of float32. */
#define TYPE_HALF 2
#define TYPE_BFLOAT16 14

#define ALIGNED_ELEMENTS 8 /* 16 bytes */
#define PRODUCTS_IN_A_NANOSECOND 100000 /* multiply-adds: about 200 TFLOPS, an A100 at work */

static void product(int type, const int leading[3], double multiply_adds)
{
    if (type != TYPE_HALF && type != TYPE_BFLOAT16)
        return;
    if (leading[0] % ALIGNED_ELEMENTS || leading[1] % ALIGNED_ELEMENTS || leading[2] % ALIGNED_ELEMENTS)
        vgpu_kernel_took((uint64_t)(multiply_adds / PRODUCTS_IN_A_NANOSECOND));
}

#pragma GCC diagnostic ignored "-Wunused-parameter" /* each interface has all of cuBLAS's */

VGPU_API int cublasGemmEx(void *handle, int transposed_a, int transposed_b, int m, int n, int k, const void *alpha,
                          const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta,
                          void *c, int type_c, int ldc, int compute, int algorithm)
{
    product(type_a, (const int[]){lda, ldb, ldc}, (double)m * n * k);
    return 0;
}

VGPU_API int cublasGemmStridedBatchedEx(void *handle, int transposed_a, int transposed_b, int m, int n, int k,
                                        const void *alpha, const void *a, int type_a, int lda, long long stride_a,
                                        const void *b, int type_b, int ldb, long long stride_b, const void *beta,
                                        void *c, int type_c, int ldc, long long stride_c, int count, int compute,
                                        int algorithm)
{
    product(type_a, (const int[]){lda, ldb, ldc}, (double)m * n * k * count);
    return 0;
}
