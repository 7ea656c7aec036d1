/* The line of Python that a call comes from, through the interpreter's own C
 * interface (3.9 and later), which is looked up at run time: the process may
 * hold any version, or none. */
#define _GNU_SOURCE
#include "host_reads.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define DEEPEST 200 /* frames of torch on top of the program's own */

static struct {
    int (*is_initialized)(void);
    int (*is_finalizing)(void);
    void *(*this_thread)(void);
    int (*ensure)(void);
    void (*release)(int);
    void *(*frame)(void);
    void *(*frame_code)(void *);
    void *(*frame_back)(void *);
    int (*frame_line)(void *);
    int (*frame_lasti)(void *); /* 3.11 and later; NULL before */
    void *(*attribute)(void *, const char *);
    const char *(*text)(void *);
    void (*fetch_error)(void **, void **, void **);
    void (*restore_error)(void *, void *, void *);
    void (*incref)(void *);
    void (*decref)(void *);
    int is_there;
} python;

static pthread_once_t python_once = PTHREAD_ONCE_INIT;
static char torch_folder[4096]; /* ends with a slash; empty: not loaded */
static __thread int gil_state;

static int find(void *function, const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);

    memcpy(function, &symbol, sizeof symbol); /* ISO C has no such cast */
    return symbol != NULL;
}

static void find_python(void)
{
    if (!find(&python.is_finalizing, "Py_IsFinalizing") && !find(&python.is_finalizing, "_Py_IsFinalizing"))
        return;
    find(&python.frame_lasti, "PyFrame_GetLasti");
    python.is_there = find(&python.is_initialized, "Py_IsInitialized")
                      && find(&python.this_thread, "PyGILState_GetThisThreadState")
                      && find(&python.ensure, "PyGILState_Ensure") && find(&python.release, "PyGILState_Release")
                      && find(&python.frame, "PyEval_GetFrame") && find(&python.frame_code, "PyFrame_GetCode")
                      && find(&python.frame_back, "PyFrame_GetBack")
                      && find(&python.frame_line, "PyFrame_GetLineNumber")
                      && find(&python.attribute, "PyObject_GetAttrString") && find(&python.text, "PyUnicode_AsUTF8")
                      && find(&python.fetch_error, "PyErr_Fetch") && find(&python.restore_error, "PyErr_Restore")
                      && find(&python.incref, "Py_IncRef") && find(&python.decref, "Py_DecRef");
}

/* ---- the interpreter's lock ------------------------------------------------- */

int python_enter(void)
{
    pthread_once(&python_once, find_python);
    /* A thread that asks for the lock while the interpreter ends would never
     * come back, and one that Python does not know has no lines to tell. */
    if (!python.is_there || !python.is_initialized() || python.is_finalizing() || !python.this_thread())
        return 0;
    gil_state = python.ensure();
    return 1;
}

void python_leave(void)
{
    python.release(gil_state);
}

void python_release(void *object)
{
    if (object)
        python.decref(object);
}

/* ---- frames -------------------------------------------------------------------- */

static int note_torch_folder(struct dl_phdr_info *info, size_t size, void *unused)
{
    static const char library[] = "lib/libtorch_cpu.so";
    const char *found = info->dlpi_name ? strstr(info->dlpi_name, library) : NULL;

    (void)size;
    (void)unused;
    if (!found || found[sizeof library - 1] || (size_t)(found - info->dlpi_name) >= sizeof torch_folder)
        return 0;
    memcpy(torch_folder, info->dlpi_name, (size_t)(found - info->dlpi_name));
    return 1;
}

enum owner { PROGRAM, TORCH, TORCHS_PRINTING };

static enum owner owner_of(void *code)
{
    void *file = python.attribute(code, "co_filename");
    const char *name = file ? python.text(file) : NULL;
    size_t length = strlen(torch_folder);
    enum owner owner = PROGRAM;

    if (!name || !strncmp(name, "<frozen ", 8))
        owner = TORCH;
    else if (length && !strncmp(name, torch_folder, length))
        owner = strcmp(name + length, "_tensor_str.py") ? TORCH : TORCHS_PRINTING;
    python_release(file);
    return owner;
}

static uint64_t mixed(uint64_t key, uint64_t value)
{
    key = (key ^ value) * 0x9e3779b97f4a7c15ull;
    return key ^ key >> 29;
}

struct python_line python_line_find(void)
{
    struct python_line line = { 0, NULL, NULL, 0 };
    void *type, *value, *trace, *frame = python.frame(); /* borrowed */
    uint64_t key = 1;
    int prints = 0;

    if (!torch_folder[0])
        dl_iterate_phdr(note_torch_folder, NULL);
    python.fetch_error(&type, &value, &trace);
    if (frame)
        python.incref(frame);
    for (int depth = 0; frame && depth < DEEPEST; depth++) {
        void *code = python.frame_code(frame);
        int at = python.frame_lasti ? python.frame_lasti(frame) : python.frame_line(frame);
        key = mixed(mixed(key, (uintptr_t)code), (uint64_t)at);
        enum owner owner = owner_of(code);
        if (owner == PROGRAM) {
            line = (struct python_line){ key, frame, code, prints };
            frame = NULL;
            break;
        }
        prints |= owner == TORCHS_PRINTING;
        void *back = python.frame_back(frame);
        python.decref(code);
        python.decref(frame);
        frame = back;
    }
    python_release(frame);
    python.restore_error(type, value, trace);
    return line;
}

void python_line_text(const struct python_line *line, char *out, size_t room)
{
    void *type, *value, *trace;

    python.fetch_error(&type, &value, &trace);
    void *file = python.attribute(line->code, "co_filename");
    const char *name = file ? python.text(file) : NULL;
    snprintf(out, room, "%s:%d", name ? name : "?", python.frame_line(line->frame));
    python_release(file);
    python.restore_error(type, value, trace);
}
