#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/keeper.h"

/* Names of one directory are collected before they are removed: some file systems skip entries otherwise. */
static bool remove_entries(int directory, int depth);

static bool remove_entry(int directory, const char *name, int depth) {
    if (unlinkat(directory, name, 0) == 0 || errno == ENOENT)
        return true;
    if (errno != EISDIR && errno != EPERM && errno != ENOTEMPTY)
        return false;
    int inner = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner < 0 && errno == EACCES && fchmodat(directory, name, 0700, 0) == 0)
        inner = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner < 0)
        return unlinkat(directory, name, AT_REMOVEDIR) == 0;
    fchmod(inner, 0700);
    bool ok = depth < 4000 && remove_entries(inner, depth + 1);
    close(inner);
    return unlinkat(directory, name, AT_REMOVEDIR) == 0 && ok;
}

static bool remove_entries(int directory, int depth) {
    int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    if (!stream) {
        if (copy >= 0)
            close(copy);
        return false;
    }
    bool ok = true;
    for (bool again = true; again;) {
        again = false;
        rewinddir(stream);
        for (struct dirent *entry; (entry = readdir(stream));) {
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
                continue;
            if (remove_entry(directory, entry->d_name, depth))
                again = true;
            else
                ok = false;
        }
        if (!ok)
            break;
    }
    closedir(stream);
    return ok;
}

bool remove_tree_at(int directory, const char *name) { return remove_entry(directory, name, 0); }

bool remove_tree(const char *path) { return remove_entry(AT_FDCWD, path, 0); }
