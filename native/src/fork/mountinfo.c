#define _GNU_SOURCE
#include "fork/mountinfo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/procfs.h"

/* "\040" and the like, as /proc writes what would end a field. */
static void unescape(char *text) {
    char *to = text;
    for (char *from = text; *from; from++) {
        unsigned code;
        if (*from == '\\' && sscanf(from + 1, "%3o", &code) == 1) {
            *to++ = (char)code;
            from += 3;
        } else
            *to++ = *from;
    }
    *to = '\0';
}

static char *take(char **rest) {
    char *field = strsep(rest, " ");
    return field ? field : (char *)"";
}

static bool parse(char *line, struct mount_entry *ret) {
    char *separator = strstr(line, " - "), *rest = line;
    unsigned high, low;
    if (!separator)
        return false;
    *separator = '\0';
    ret->id = atoi(take(&rest));
    ret->parent = atoi(take(&rest));
    if (sscanf(take(&rest), "%u:%u", &high, &low) != 2)
        return false;
    ret->device = high << 20 | low;
    char *root = take(&rest), *point = take(&rest);
    ret->flags = take(&rest);
    ret->fields = rest ? rest : "";
    rest = separator + 3;
    ret->type = take(&rest);
    char *source = take(&rest);
    ret->options = rest ? rest : "";
    unescape(root);
    unescape(point);
    unescape(source);
    ret->root = root;
    ret->point = point;
    ret->source = source;
    return true;
}

struct bunshin_error *mountinfo_read(int proc, const char *directory, struct mountinfo *ret) {
    char path[32];
    snprintf(path, sizeof path, "%.15s/mountinfo", directory);
    *ret = (struct mountinfo){0};
    if (!procfs_read(proc, path, &ret->text))
        return bunshin_error_os("cannot read the mounts of %s", directory);
    size_t lines = 0;
    for (const char *at = (const char *)ret->text.data; (at = strchr(at, '\n')); at++)
        lines++;
    if (!(ret->list = calloc(lines + 1, sizeof *ret->list)))
        return bunshin_error_no_memory();
    char *rest = (char *)ret->text.data;
    for (char *line; (line = strsep(&rest, "\n"));)
        if (*line && parse(line, &ret->list[ret->count]))
            ret->count++;
    return NULL;
}

void mountinfo_deinit(struct mountinfo *mounts) {
    buffer_deinit(&mounts->text);
    free(mounts->list);
    *mounts = (struct mountinfo){0};
}

const struct mount_entry *mountinfo_find(const struct mountinfo *mounts, int id) {
    for (size_t i = 0; i < mounts->count; i++)
        if (mounts->list[i].id == id)
            return &mounts->list[i];
    return NULL;
}
