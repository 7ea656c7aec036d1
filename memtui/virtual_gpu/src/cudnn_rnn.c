/* Stand-in for libcudnn: recurrent networks (cuDNN 8's second interface).  The
 * layout of the weights is exact in size, because torch makes its parameters
 * views of it; workspace and reserve are estimates of what cuDNN keeps. */
#include "core.h"
#include "cudnn.h"

#include <stdlib.h>
#include <string.h>

enum { CELL_RELU, CELL_TANH, CELL_LSTM, CELL_GRU };

struct rnn {
    int cell, has_bias, directions, type;
    int input, hidden, projection, layers;
};

struct rnn_data {
    int max_length, batch;
};

/* ---- sizes ------------------------------------------------------------------------ */

static int gates(const struct rnn *rnn)
{
    return rnn->cell == CELL_LSTM ? 4 : rnn->cell == CELL_GRU ? 3 : 1;
}

static int output_size(const struct rnn *rnn)
{
    return rnn->projection ? rnn->projection : rnn->hidden;
}

static int input_size(const struct rnn *rnn, int pseudo_layer)
{
    return pseudo_layer < rnn->directions ? rnn->input : output_size(rnn) * rnn->directions;
}

static int is_projected(const struct rnn *rnn)
{
    return rnn->projection && rnn->projection != rnn->hidden;
}

/* Elements of one pseudo layer's matrices: a layer in one direction. */
static size_t matrix_elements(const struct rnn *rnn, int pseudo_layer)
{
    size_t hidden = (size_t)rnn->hidden;
    size_t per_gate = hidden * (size_t)(input_size(rnn, pseudo_layer) + output_size(rnn));

    return per_gate * (size_t)gates(rnn) + (is_projected(rnn) ? hidden * (size_t)output_size(rnn) : 0);
}

static size_t bias_elements(const struct rnn *rnn)
{
    return rnn->has_bias ? 2 * (size_t)gates(rnn) * (size_t)rnn->hidden : 0;
}

static size_t matrices_before(const struct rnn *rnn, int pseudo_layer)
{
    size_t elements = 0;

    for (int i = 0; i < pseudo_layer; i++)
        elements += matrix_elements(rnn, i);
    return elements;
}

/* ---- descriptors -------------------------------------------------------------------- */

VGPU_API int cudnnCreateRNNDescriptor(void **out)
{
    *out = calloc(1, sizeof(struct rnn));
    return *out ? 0 : CUDNN_ALLOC_FAILED;
}

VGPU_API int cudnnDestroyRNNDescriptor(void *descriptor)
{
    free(descriptor);
    return 0;
}

VGPU_API int cudnnSetRNNDescriptor_v8(struct rnn *rnn, int algorithm, int cell, int bias, int direction,
                                      int input_mode, int type, int math_precision, int math_type, int input,
                                      int hidden, int projection, int layers, void *dropout, unsigned flags)
{
    (void)algorithm, (void)input_mode, (void)math_precision, (void)math_type, (void)dropout, (void)flags;
    *rnn = (struct rnn){ cell, bias != 0, direction ? 2 : 1, type, input, hidden, projection, layers };
    return 0;
}

VGPU_API int cudnnCreateRNNDataDescriptor(void **out)
{
    *out = calloc(1, sizeof(struct rnn_data));
    return *out ? 0 : CUDNN_ALLOC_FAILED;
}

VGPU_API int cudnnDestroyRNNDataDescriptor(void *descriptor)
{
    free(descriptor);
    return 0;
}

VGPU_API int cudnnSetRNNDataDescriptor(struct rnn_data *data, int type, int layout, int max_length, int batch,
                                       int vector_size, const int *lengths, void *padding)
{
    (void)type, (void)layout, (void)vector_size, (void)lengths, (void)padding;
    *data = (struct rnn_data){ max_length, batch };
    return 0;
}

/* ---- weights --------------------------------------------------------------------------- */

VGPU_API int cudnnGetRNNWeightSpaceSize(void *handle, const struct rnn *rnn, size_t *bytes)
{
    int pseudo_layers = rnn->layers * rnn->directions;

    (void)handle;
    *bytes = (matrices_before(rnn, pseudo_layers) + (size_t)pseudo_layers * bias_elements(rnn))
             * cudnn_element_bytes(rnn->type);
    return 0;
}

/* Torch asks for the matrix and for the bias in calls of their own, and leaves
 * out the other's shape and address. */
static void describe(struct cudnn_tensor *shape, char **out, char *address, int type, int rows, int columns)
{
    if (out)
        *out = address;
    if (shape)
        *shape = (struct cudnn_tensor){ type, 3, { 1, rows, columns }, { rows * columns, columns, 1 } };
}

/* All matrices come first, layer by layer: those of the input, those of the
 * recurrence, the projection; then all biases in the same order. */
VGPU_API int cudnnGetRNNWeightParams(void *handle, const struct rnn *rnn, int pseudo_layer, size_t size,
                                     char *weights, int which, struct cudnn_tensor *matrix, char **matrix_address,
                                     struct cudnn_tensor *bias, char **bias_address)
{
    size_t element = cudnn_element_bytes(rnn->type), hidden = (size_t)rnn->hidden;
    size_t input = (size_t)input_size(rnn, pseudo_layer), output = (size_t)output_size(rnn);
    size_t at = matrices_before(rnn, pseudo_layer);
    int count = gates(rnn), recurrent = which - count;
    int rows = rnn->hidden, columns;

    (void)handle;
    (void)size;
    if (which < 0 || which > 2 * count || (which == 2 * count && !is_projected(rnn)))
        return CUDNN_BAD_PARAM;
    if (which == 2 * count) {
        at += (size_t)count * hidden * (input + output);
        rows = (int)output;
        columns = (int)hidden;
    } else if (recurrent < 0) {
        at += (size_t)which * hidden * input;
        columns = (int)input;
    } else {
        at += (size_t)count * hidden * input + (size_t)recurrent * hidden * output;
        columns = (int)output;
    }
    describe(matrix, matrix_address, weights + at * element, rnn->type, rows, columns);
    if (!rnn->has_bias || which == 2 * count) {
        describe(bias, bias_address, NULL, rnn->type, 0, 0);
        return 0;
    }
    at = matrices_before(rnn, rnn->layers * rnn->directions) + (size_t)pseudo_layer * bias_elements(rnn)
         + (size_t)which * hidden;
    describe(bias, bias_address, weights + at * element, rnn->type, rnn->hidden, 1);
    return 0;
}

/* ---- what a pass needs ---------------------------------------------------------------------- */

/* Workspace: the gates of one layer, which every layer uses anew.  Reserve, in
 * training: what backward wants of each layer, its gates, its cell state and
 * its output. */
VGPU_API int cudnnGetRNNTempSpaceSizes(void *handle, const struct rnn *rnn, int mode, const struct rnn_data *data,
                                       size_t *workspace, size_t *reserve)
{
    size_t steps = (size_t)data->max_length * (size_t)data->batch;
    size_t per_step = (size_t)rnn->hidden * (size_t)rnn->directions * cudnn_element_bytes(rnn->type);
    size_t kept = (size_t)gates(rnn) + (rnn->cell == CELL_LSTM) + 1;

    (void)handle;
    vgpu_note("estimated", "cuDNN RNN workspace");
    *workspace = steps * per_step * (size_t)gates(rnn);
    if (reserve)
        *reserve = mode ? steps * per_step * kept * (size_t)rnn->layers : 0;
    return 0;
}
