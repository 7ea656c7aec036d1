/* The environment, read at the first use and not when the library is loaded:
 * scripts set CUDA_VISIBLE_DEVICES in their first lines, long after that. */
#define _GNU_SOURCE
#include "core.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What cuDNN 9's kernels take on an A100: see the README. */
#define CUDNN_LOAD (252ull << 20)

static struct vgpu_settings settings;
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static char machine[4096]; /* whose settings these are, by VGPU_SHM */

static int visible[VGPU_MAX_DEVICES];
static int visible_count;
static pthread_once_t visible_once = PTHREAD_ONCE_INIT;

/* "24GiB", "500M" or plain bytes; stops at a comma or at the end. */
static uint64_t parse_bytes(const char *text, char **end)
{
    double value = strtod(text, end);
    double unit = 1;

    switch (**end) {
    case 'k': case 'K': unit = 1024.0; break;
    case 'm': case 'M': unit = 1024.0 * 1024; break;
    case 'g': case 'G': unit = 1024.0 * 1024 * 1024; break;
    case 't': case 'T': unit = 1024.0 * 1024 * 1024 * 1024; break;
    }
    while (**end && **end != ',')
        ++*end;
    /* Also false for a NaN; the bound keeps the conversion defined. */
    return value > 0 && value * unit < 1e18 ? (uint64_t)(value * unit) : 0;
}

static uint64_t bytes_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    char *end;

    return text && *text ? parse_bytes(text, &end) : otherwise;
}

static int integer_from(const char *variable, int otherwise, int low, int high)
{
    const char *text = getenv(variable);

    if (!text || !*text)
        return otherwise;
    long value = strtol(text, NULL, 10);
    return value < low ? low : value > high ? high : (int)value;
}

/* A copy, because the program may change its environment later; or NULL. */
static const char *text_from(const char *variable)
{
    const char *text = getenv(variable);

    return text && *text ? strdup(text) : NULL;
}

/* "24GiB,80GiB": the last size stands for every further device. */
static void read_capacities(void)
{
    const char *text = getenv("VGPU_MEMORY");
    uint64_t last = 48ull << 30;

    for (int i = 0; i < VGPU_MAX_DEVICES; i++) {
        if (text && *text) {
            char *end;
            last = parse_bytes(text, &end);
            text = *end == ',' ? end + 1 : end;
        }
        settings.capacity[i] = last;
    }
}

static void read_settings(void)
{
    const char *text = getenv("VGPU_SHM");

    snprintf(machine, sizeof machine, "%s", text ? text : "");
    settings.device_count = integer_from("VGPU_COUNT", 1, 0, VGPU_MAX_DEVICES);
    read_capacities();
    settings.driver_reserved = bytes_from("VGPU_DRIVER_RESERVED", 0);
    settings.context = bytes_from("VGPU_CONTEXT", 0);
    settings.copy_max = bytes_from("VGPU_COPY_MAX", 1 << 20);
    text = getenv("VGPU_CUDNN_WORKSPACE");
    settings.cudnn_workspace = text && *text ? (int64_t)bytes_from("VGPU_CUDNN_WORKSPACE", 0) : -1;
    settings.cudnn_load = bytes_from("VGPU_CUDNN_LOAD", CUDNN_LOAD);
    settings.nccl_buffers = (int64_t)bytes_from("VGPU_NCCL_BUFFERS", (uint64_t)-1);
    settings.report = integer_from("VGPU_REPORT", 0, 0, 1);
    settings.trace = integer_from("VGPU_TRACE", 0, 0, 1);

    settings.selected = 0;
    if ((text = getenv("VGPU_SELECTED")))
        settings.selected = strtod(text, NULL);
    if (!(settings.selected > 0)) /* nor a NaN */
        settings.selected = 0;
    if (settings.selected > 1)
        settings.selected = 1;

    /* Compute capability 8.6 by default: torch picks larger workspaces on 9.0. */
    settings.cc_major = 8;
    settings.cc_minor = 6;
    if ((text = getenv("VGPU_CC")) && sscanf(text, "%d.%d", &settings.cc_major, &settings.cc_minor) != 2)
        settings.cc_major = 8, settings.cc_minor = 6;
    settings.multiprocessors = integer_from("VGPU_SMS", 84, 1, 1024);
    settings.report_file = text_from("VGPU_REPORT_FILE");
    settings.name = text_from("VGPU_NAME");
    if (!settings.name)
        settings.name = "NVIDIA RTX A6000";
}

VGPU_API const struct vgpu_settings *vgpu_settings(void)
{
    pthread_once(&settings_once, read_settings);
    return &settings;
}

/* Reads them again where the environment names another machine than before. */
int settings_follow(void)
{
    const char *text = getenv("VGPU_SHM");

    vgpu_settings();
    if (!strcmp(machine, text ? text : ""))
        return 0;
    read_settings();
    return 1;
}

VGPU_API uint64_t vgpu_usable(int physical)
{
    const struct vgpu_settings *s = vgpu_settings();
    uint64_t capacity = s->capacity[physical];

    return capacity > s->driver_reserved ? capacity - s->driver_reserved : 0;
}

/* The same index always has the same UUID, so that processes agree; indices
 * differ from the first byte on, so that short prefixes are unique. */
VGPU_API void vgpu_uuid(int physical, unsigned char out[16])
{
    uint64_t word = 0;

    for (int i = 0; i < 16; i++) {
        if (i % 8 == 0) { /* splitmix64 */
            word = (uint64_t)(2 * physical + i / 8 + 1) * 0x9e3779b97f4a7c15ull;
            word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9ull;
            word = (word ^ word >> 27) * 0x94d049bb133111ebull;
            word ^= word >> 31;
        }
        out[i] = (unsigned char)(word >> (8 * (i % 8)));
    }
}

VGPU_API void vgpu_uuid_text(int physical, char *out, size_t size)
{
    unsigned char u[16];

    vgpu_uuid(physical, u);
    snprintf(out, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7],
             u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

/* The only device whose UUID starts with the given text, or -1. */
static int device_of_uuid(const char *prefix, size_t length)
{
    int found = -1;

    for (int i = 0; i < vgpu_settings()->device_count; i++) {
        char uuid[64];
        vgpu_uuid_text(i, uuid, sizeof uuid);
        if (length <= strlen(uuid) && !strncmp(uuid, prefix, length)) {
            if (found >= 0)
                return -1;
            found = i;
        }
    }
    return found;
}

static int device_of_entry(const char *entry, size_t length)
{
    if (length > 4 && !strncmp(entry, "GPU-", 4))
        return device_of_uuid(entry, length);

    char *end;
    long index = strtol(entry, &end, 10);
    if (end == entry || end > entry + length || index < 0 || index >= vgpu_settings()->device_count)
        return -1;
    return (int)index;
}

/* As CUDA reads it: the list ends at the first entry that names no device, and
 * a device named twice leaves none at all. */
static void read_visible(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");

    if (!text) {
        for (int i = 0; i < vgpu_settings()->device_count; i++)
            visible[visible_count++] = i;
        return;
    }
    while (*text) {
        while (isspace((unsigned char)*text))
            text++;
        size_t length = strcspn(text, ",");
        size_t trimmed = length;
        while (trimmed && isspace((unsigned char)text[trimmed - 1]))
            trimmed--;
        int device = device_of_entry(text, trimmed);
        if (device < 0)
            return;
        for (int i = 0; i < visible_count; i++) {
            if (visible[i] == device) {
                visible_count = 0;
                return;
            }
        }
        visible[visible_count++] = device;
        text += length;
        if (*text == ',')
            text++;
    }
}

VGPU_API int vgpu_visible_count(void)
{
    pthread_once(&visible_once, read_visible);
    return visible_count;
}

VGPU_API int vgpu_physical(int ordinal)
{
    return ordinal >= 0 && ordinal < vgpu_visible_count() ? visible[ordinal] : -1;
}

VGPU_API int vgpu_ordinal(int physical)
{
    for (int i = 0; i < vgpu_visible_count(); i++) {
        if (visible[i] == physical)
            return i;
    }
    return -1;
}
