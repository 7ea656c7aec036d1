/* Stand-in for libcudnn: descriptors, which keep what torch says in them. */
#include "core.h"
#include "cudnn.h"

#include <stdlib.h>
#include <string.h>

static int new_descriptor(void **out, size_t size)
{
    *out = calloc(1, size);
    return *out ? 0 : CUDNN_ALLOC_FAILED;
}

#define DESCRIPTOR(name, size)                        \
    VGPU_API int cudnnCreate##name(void **out)        \
    {                                                 \
        return new_descriptor(out, size);             \
    }                                                 \
    VGPU_API int cudnnDestroy##name(void *descriptor) \
    {                                                 \
        free(descriptor);                             \
        return 0;                                     \
    }

/* Of those that nothing reads again. */
#define UNREAD 256

DESCRIPTOR(TensorDescriptor, sizeof(struct cudnn_tensor))
DESCRIPTOR(FilterDescriptor, sizeof(struct cudnn_tensor))
DESCRIPTOR(ConvolutionDescriptor, sizeof(struct cudnn_convolution))
DESCRIPTOR(PoolingDescriptor, UNREAD)
DESCRIPTOR(DropoutDescriptor, UNREAD)
DESCRIPTOR(ActivationDescriptor, UNREAD)
DESCRIPTOR(CTCLossDescriptor, UNREAD)
DESCRIPTOR(SpatialTransformerDescriptor, UNREAD)

size_t cudnn_element_bytes(int type)
{
    return type == CUDNN_DOUBLE ? 8 : type == CUDNN_HALF || type == CUDNN_BFLOAT16 ? 2 : 4;
}

/* ---- tensors and filters ------------------------------------------------------ */

static int set_shape(struct cudnn_tensor *tensor, int type, int count, const int dimensions[])
{
    if (count < 0 || count > CUDNN_MAX_DIMENSIONS)
        return CUDNN_BAD_PARAM;
    *tensor = (struct cudnn_tensor){ .type = type, .count = count };
    memcpy(tensor->dimensions, dimensions, (size_t)count * sizeof *dimensions);
    return 0;
}

VGPU_API int cudnnSetTensorNdDescriptor(struct cudnn_tensor *tensor, int type, int count, const int dimensions[],
                                        const int strides[])
{
    int status = set_shape(tensor, type, count, dimensions);

    if (!status)
        memcpy(tensor->strides, strides, (size_t)count * sizeof *strides);
    return status;
}

VGPU_API int cudnnSetFilterNdDescriptor(struct cudnn_tensor *filter, int type, int format, int count,
                                        const int dimensions[])
{
    (void)format;
    return set_shape(filter, type, count, dimensions);
}

VGPU_API int cudnnGetTensorNdDescriptor(const struct cudnn_tensor *tensor, int wanted, int *type, int *count,
                                        int dimensions[], int strides[])
{
    int known = wanted < tensor->count ? wanted : tensor->count;

    *type = tensor->type;
    *count = tensor->count;
    for (int i = 0; i < known; i++) {
        dimensions[i] = tensor->dimensions[i];
        strides[i] = tensor->strides[i];
    }
    return 0;
}

/* ---- convolutions --------------------------------------------------------------- */

VGPU_API int cudnnSetConvolutionNdDescriptor(struct cudnn_convolution *convolution, int count, const int padding[],
                                             const int stride[], const int dilation[], int mode, int compute_type)
{
    size_t bytes = (size_t)count * sizeof(int);

    (void)mode;
    if (count < 0 || count > CUDNN_MAX_DIMENSIONS)
        return CUDNN_BAD_PARAM;
    *convolution = (struct cudnn_convolution){ .count = count, .compute_type = compute_type, .groups = 1 };
    memcpy(convolution->padding, padding, bytes);
    memcpy(convolution->stride, stride, bytes);
    memcpy(convolution->dilation, dilation, bytes);
    return 0;
}

VGPU_API int cudnnSetConvolutionGroupCount(struct cudnn_convolution *convolution, int groups)
{
    convolution->groups = groups;
    return 0;
}

VGPU_API int cudnnSetConvolutionMathType(struct cudnn_convolution *convolution, int math)
{
    convolution->math = math;
    return 0;
}
