#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/buffer.h"
#include "common/procfs.h"
#include "keeper/keeper.h"

static bool write_text(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t put = write(fd, text, strlen(text));
    close(fd);
    return put == (ssize_t)strlen(text);
}

/* The directory of this process's group for a controller ("" for none); *ret_version is 1 or 2. */
static bool own_group(const char *controller, char *ret, size_t size, int *ret_version) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return false;
    char line[1024];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        names++;
        for (char *name = strtok(names, ","); name; name = strtok(NULL, ","))
            if (!strcmp(name, controller)) {
                snprintf(ret, size, "/sys/fs/cgroup/%s%s", controller, strcmp(path, "/") ? path : "");
                *ret_version = 1;
                found = access(ret, W_OK) == 0;
                if (!found) { /* the path may lie outside what is mounted here */
                    snprintf(ret, size, "/sys/fs/cgroup/%s", controller);
                    found = access(ret, W_OK) == 0;
                }
            }
    }
    fclose(file);
    if (found)
        return true;
    file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "0::", 3)) {
            line[strcspn(line, "\n")] = '\0';
            char controllers[1200];
            snprintf(controllers, sizeof controllers, "/sys/fs/cgroup%s/cgroup.subtree_control", line + 3);
            FILE *list = fopen(controllers, "re");
            char names[512] = "";
            if (list) {
                if (!fgets(names, sizeof names, list))
                    names[0] = '\0';
                fclose(list);
            }
            if (strstr(names, controller)) {
                snprintf(ret, size, "/sys/fs/cgroup%s", line + 3);
                *ret_version = 2;
                found = access(ret, W_OK) == 0;
            }
        }
    if (file)
        fclose(file);
    return found;
}

static bool lives(pid_t pid) {
    char name[16];
    struct process_stat stat = {0};
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(name, sizeof name, "%d", pid);
    bool found = proc < 0 || procfs_stat(proc, name, &stat);
    if (proc >= 0)
        close(proc);
    return found && stat.state != 'Z';
}

/* What a keeper that was itself killed left behind. A group that still holds somebody cannot be removed. */
void cgroup_remove_stale(void) {
    static const char *const controllers[] = {"memory", "pids"};
    for (size_t i = 0; i < sizeof controllers / sizeof *controllers; i++) {
        char path[1200];
        int version, owner;
        long long id;
        DIR *group = own_group(controllers[i], path, sizeof path, &version) ? opendir(path) : NULL;
        for (struct dirent *entry; group && (entry = readdir(group));)
            if (sscanf(entry->d_name, "bunshin-%d-%lld", &owner, &id) == 2 && !lives(owner))
                (void)unlinkat(dirfd(group), entry->d_name, AT_REMOVEDIR);
        if (group)
            closedir(group);
    }
}

const char *cgroup_support(const char *controller) {
    char path[1200], probe[1300];
    int version = 0;
    if (!own_group(controller, path, sizeof path, &version))
        return "none";
    snprintf(probe, sizeof probe, "%s/bunshin-probe-%d", path, getpid());
    if (mkdir(probe, 0700) != 0)
        return "none";
    rmdir(probe);
    return version == 2 ? "v2" : "v1";
}

static struct bunshin_error *limit(const char *controller, const char *name, const char *value, struct cgroup_set *ret) {
    char group[1200], path[1400], file[1500];
    int version = 0;
    if (!own_group(controller, group, sizeof group, &version))
        return NULL;
    snprintf(path, sizeof path, "%s/%s", group, name);
    bool known = false;
    for (int i = 0; i < ret->count; i++)
        known |= !strcmp(ret->path[i], path);
    if (!known) {
        if (mkdir(path, 0700) != 0)
            return NULL; /* no rights here: the caller falls back to polling */
        if (!(ret->path[ret->count] = strdup(path)))
            return bunshin_error_no_memory();
        ret->count++;
    }
    const char *setting = !strcmp(controller, "pids") ? "pids.max" : version == 2 ? "memory.max" : "memory.limit_in_bytes";
    snprintf(file, sizeof file, "%s/%s", path, setting);
    if (!write_text(file, value))
        return bunshin_error_os("cannot set limit %s to %s", setting, value);
    if (!strcmp(controller, "memory")) {
        ret->memory_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (version == 1) { /* without this, v1 lets a workspace swap instead */
            snprintf(file, sizeof file, "%s/memory.memsw.limit_in_bytes", path);
            (void)write_text(file, value);
        }
    }
    return NULL;
}

struct bunshin_error *cgroup_create(const char *name, const char *memory, const char *pids, struct cgroup_set *ret) {
    *ret = (struct cgroup_set){.memory_fd = -1};
    struct bunshin_error *error = NULL;
    if (memory)
        error = limit("memory", name, memory, ret);
    if (!error && pids)
        error = limit("pids", name, pids, ret);
    if (error)
        cgroup_destroy(ret);
    return error;
}

bool cgroup_add(const struct cgroup_set *set, pid_t pid) {
    char path[1500], text[16];
    snprintf(text, sizeof text, "%d", pid);
    for (int i = 0; i < set->count; i++) {
        snprintf(path, sizeof path, "%s/cgroup.procs", set->path[i]);
        if (!write_text(path, text))
            return false;
    }
    return true;
}

void cgroup_destroy(struct cgroup_set *set) {
    for (int i = 0; i < set->count; i++) {
        for (int tries = 0; set->path[i] && rmdir(set->path[i]) != 0 && errno == EBUSY && tries < 200; tries++)
            usleep(1000); /* the last task leaves its group a little after it was reaped */
        free(set->path[i]);
    }
    if (set->memory_fd >= 0)
        close(set->memory_fd);
    *set = (struct cgroup_set){.memory_fd = -1};
}
