/*
 * A plan is a list of records, done in order: the mounts of the new root first, `pivot`, then what tools get. The owner
 * decides (bunshin_gym/image.py writes the mounts), this file only does; it knows no policy.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/records.h"
#include "init/init.h"

static struct bunshin_error *mount_at(const char *source, const char *target, const char *type, unsigned long flags,
                                      const char *data) {
    if (mount(source, target, type, flags, data) != 0)
        return bunshin_error_os("cannot mount %s on %s%s%s", type ? type : source, target, data ? " with " : "", data ? data : "");
    return NULL;
}

static unsigned long bind_flags(const char *text) {
    unsigned long flags = 0;
    if (strstr(text, "ro"))
        flags |= MS_RDONLY;
    if (strstr(text, "nosuid"))
        flags |= MS_NOSUID;
    if (strstr(text, "nodev"))
        flags |= MS_NODEV;
    if (strstr(text, "noexec"))
        flags |= MS_NOEXEC;
    return flags;
}

static struct bunshin_error *do_bind(const char *source, const char *target, const char *options) {
    bool recursive = strstr(options, "rec") != NULL;
    TRY(mount_at(source, target, NULL, MS_BIND | (recursive ? MS_REC : 0), NULL));
    unsigned long flags = bind_flags(options);
    if (!flags)
        return NULL;
    /* mount_setattr changes only what is asked: a plain remount would have to repeat flags locked by the parent. */
    struct mount_attr attributes = {0};
    attributes.attr_set = (flags & MS_RDONLY ? MOUNT_ATTR_RDONLY : 0) | (flags & MS_NOSUID ? MOUNT_ATTR_NOSUID : 0) |
                          (flags & MS_NODEV ? MOUNT_ATTR_NODEV : 0) | (flags & MS_NOEXEC ? MOUNT_ATTR_NOEXEC : 0);
    if (syscall(SYS_mount_setattr, AT_FDCWD, target, recursive ? AT_RECURSIVE : 0, &attributes, sizeof attributes) != 0)
        return bunshin_error_os("cannot make %s %s", target, options);
    return NULL;
}

/* All layers in one string, as before Linux 6.8: a page bounds it, and with it the depth. */
static struct bunshin_error *overlay_in_one_string(const struct records *record) {
    struct buffer options = {0};
    struct bunshin_error *error = buffer_printf(&options, "userxattr,lowerdir=");
    for (uint32_t i = 4; !error && i < record->count; i++)
        error = buffer_printf(&options, "%s%s", i > 4 ? ":" : "", record->string[i]);
    if (!error && *record->string[2])
        error = buffer_printf(&options, ",upperdir=%s,workdir=%s,volatile", record->string[2], record->string[3]);
    if (!error)
        error = buffer_append(&options, "", 1);
    if (!error && options.size > 4096)
        error = bunshin_error_new(BUNSHIN_ERROR_OS, E2BIG, "cannot mount an overlay on %s: %u layers do not fit one page", record->string[1],
                                  record->count - 4);
    if (!error)
        error = mount_at("overlay", record->string[1], "overlay", MS_NODEV | MS_NOSUID, (const char *)options.data);
    buffer_deinit(&options);
    return error;
}

/* overlay TARGET UPPER WORK LOWER…: top layer first. The layers are given one by one, so that no page bounds the depth. */
static struct bunshin_error *do_overlay(const struct records *record, bool as_one_string) {
    const char *target = record->string[1], *upper = record->string[2], *work = record->string[3];
    for (uint32_t i = 2; i < record->count; i++)
        as_one_string |= strlen(record->string[i]) > 255; /* longer ones fsconfig does not take */
    int context = as_one_string ? -1 : (int)syscall(SYS_fsopen, "overlay", 1 /* FSOPEN_CLOEXEC */);
    if (context < 0)
        return overlay_in_one_string(record);
    const char *step = "userxattr";
    bool ok = syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) == 0;
    if (ok && *upper) {
        step = "upperdir";
        ok = syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "upperdir", upper, 0) == 0;
        if (ok)
            ok = syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "workdir", work, 0) == 0;
        /* The upper layer is never mounted again as an upper one: nothing has to reach the disk for it. */
        if (ok)
            ok = syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, "volatile", NULL, 0) == 0;
    }
    for (uint32_t i = 4; ok && i < record->count; i++) {
        step = record->string[i];
        if (syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "lowerdir+", record->string[i], 0) == 0)
            continue;
        if (i > 4)
            ok = false;
        else { /* this kernel does not take them one by one */
            close(context);
            return overlay_in_one_string(record);
        }
    }
    int mount_fd = -1;
    if (ok) {
        step = "create";
        ok = syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0;
        if (!ok && errno == EINVAL) { /* before Linux 6.5 options are only looked at here, and this one is not known */
            close(context);
            return overlay_in_one_string(record);
        }
        if (ok)
            ok = (mount_fd = (int)syscall(SYS_fsmount, context, 1 /* FSMOUNT_CLOEXEC */, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID)) >= 0;
        if (ok)
            ok = syscall(SYS_move_mount, mount_fd, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) == 0;
    }
    struct bunshin_error *error = ok ? NULL : bunshin_error_os("cannot mount an overlay on %s (%s)", target, step);
    if (mount_fd >= 0)
        close(mount_fd);
    close(context);
    return error;
}

static const char *const links[][2] = {{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
                                       {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"}};

bool settings_makes(const char *path) {
    if (!strcmp(path, "/dev/pts") || !strcmp(path, "/dev/shm"))
        return true;
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (!strcmp(path + strlen("/dev/"), links[i][1]))
            return true;
    return false;
}

static struct bunshin_error *do_devices(const char *target, struct timespec *ret_made) {
    static const char *const names[] = {"null", "zero", "full", "random", "urandom", "tty"};
    char path[512], source[64];
    TRY(mount_at("tmpfs", target, "tmpfs", MS_NOSUID | MS_STRICTATIME, "mode=755,size=64k"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", target, names[i]);
        snprintf(source, sizeof source, "/dev/%s", names[i]);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return bunshin_error_os("cannot make %s", path);
        close(fd);
        TRY(mount_at(source, path, NULL, MS_BIND, NULL));
    }
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        snprintf(path, sizeof path, "%s/%s", target, links[i][1]);
        if (symlink(links[i][0], path) != 0)
            return bunshin_error_os("cannot make %s", path);
    }
    snprintf(path, sizeof path, "%s/pts", target);
    if (mkdir(path, 0755) != 0)
        return bunshin_error_os("cannot make %s", path);
    TRY(mount_at("devpts", path, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"));
    snprintf(path, sizeof path, "%s/shm", target);
    struct stat info;
    if (mkdir(path, 01777) != 0 || stat(target, &info) != 0)
        return bunshin_error_os("cannot make %s", path);
    *ret_made = info.st_mtim;
    return mount_at("shm", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
}

static struct bunshin_error *do_pivot(const char *root) {
    if (chdir(root) != 0)
        return bunshin_error_os("cannot enter the new root %s", root);
    if (syscall(SYS_pivot_root, ".", ".") != 0)
        return bunshin_error_os("cannot pivot into the new root %s", root);
    if (umount2(".", MNT_DETACH) != 0)
        return bunshin_error_os("cannot leave the old root");
    if (chdir("/") != 0)
        return bunshin_error_os("cannot enter the new root");
    return NULL;
}

/* A small file of the machine, such as its resolver's settings. The target may be a dangling link: it is replaced. */
static struct bunshin_error *do_copy(const char *source, const char *target) {
    struct buffer text = {0};
    int in = open(source, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return NULL;
    struct bunshin_error *error = buffer_read_all(&text, in, source);
    close(in);
    unlink(target);
    int out = error ? -1 : open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (!error && (out < 0 || write(out, text.data, text.size) != (ssize_t)text.size))
        error = bunshin_error_os("cannot write %s", target);
    if (out >= 0)
        close(out);
    buffer_deinit(&text);
    return error;
}

static struct bunshin_error *do_loopback(void) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return bunshin_error_os("cannot bring the loopback up: socket");
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    strcpy(request.ifr_name, "lo");
    struct bunshin_error *error = ioctl(fd, SIOCSIFFLAGS, &request) ? bunshin_error_os("cannot bring the loopback up") : NULL;
    close(fd);
    return error;
}

static struct bunshin_error *add_environment(struct settings *settings, const char *text) {
    size_t count = settings->environment_count;
    char **grown = realloc(settings->environment, sizeof(char *) * (count + 2));
    if (!grown)
        return bunshin_error_no_memory();
    settings->environment = grown;
    if (!(grown[count] = strdup(text)))
        return bunshin_error_no_memory();
    grown[count + 1] = NULL;
    settings->environment_count++;
    return NULL;
}

/* base DIRECTORY MOUNT: a layer of the image. */
static struct bunshin_error *add_base(struct settings *settings, const char *directory, const char *mount_point) {
    size_t most = sizeof settings->base / sizeof *settings->base;
    if ((size_t)settings->base_count == most)
        return bunshin_error_new(BUNSHIN_ERROR_INVALID, E2BIG, "an image has more than %zu layers", most);
    int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return bunshin_error_os("cannot open the layer %s", directory);
    settings->base[settings->base_count].fd = fd;
    if (!(settings->base[settings->base_count].mount = strdup(mount_point)))
        return bunshin_error_no_memory();
    settings->base_count++;
    return NULL;
}

/* layer DIRECTORY MOUNT: what the workspace wrote below a mount point ("/" ends it). */
static struct bunshin_error *add_layer(struct settings *settings, const char *directory, const char *mount_point) {
    if (settings->layer_count == SETTINGS_LAYERS)
        return NULL;
    int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return bunshin_error_os("cannot open the layer %s", directory);
    settings->layer[settings->layer_count].fd = fd;
    if (!(settings->layer[settings->layer_count].mount = strdup(mount_point)))
        return bunshin_error_no_memory();
    settings->layer_count++;
    return NULL;
}

static bool takes(const struct records *record, const char *verb, uint32_t arguments) {
    return record->count >= arguments + 1 && !strcmp(record->string[0], verb);
}

static struct bunshin_error *do_record(const struct records *record, struct settings *settings) {
    const char *const *word = record->string;
    if (takes(record, "unshare", 1)) {
        int flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
        settings->network_host = !strcmp(word[1], "host");
        if (!settings->network_host)
            flags |= CLONE_NEWNET;
        if (unshare(flags) != 0)
            return bunshin_error_os("cannot make namespaces");
        /* Nothing mounted here may show outside. */
        return mount_at("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
    }
    if (takes(record, "overlay", 4))
        return do_overlay(record, settings->layers_as_one_string);
    if (takes(record, "bind", 3))
        return do_bind(word[1], word[2], word[3]);
    if (takes(record, "tmpfs", 2))
        return mount_at("tmpfs", word[1], "tmpfs", MS_NOSUID | MS_NODEV, word[2]);
    if (takes(record, "proc", 1)) {
        char path[512];
        TRY(mount_at("proc", word[1], "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
        snprintf(path, sizeof path, "%s/sys/kernel/ns_last_pid", word[1]);
        settings->last_pid_fd = open(path, O_WRONLY | O_CLOEXEC);
        *strrchr(path, '/') = '\0';
        settings->kernel_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        snprintf(path, sizeof path, "%s/sys/net/ipv4", word[1]);
        settings->network_fd = settings->network_host ? -1 : open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return NULL;
    }
    if (takes(record, "layer", 2))
        return add_layer(settings, word[1], word[2]);
    if (takes(record, "base", 2))
        return add_base(settings, word[1], word[2]);
    if (takes(record, "sysfs", 1)) {
        /* Not everywhere allowed (a container may have its own /sys covered in part), and never necessary. */
        (void)!mount("sysfs", word[1], "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL);
        return NULL;
    }
    if (takes(record, "devices", 1))
        return do_devices(word[1], &settings->dev_made);
    if (takes(record, "mask", 1)) {
        struct stat info;
        if (stat(word[1], &info) != 0)
            return NULL;
        if (S_ISDIR(info.st_mode))
            return mount_at("tmpfs", word[1], "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, "size=0,mode=755");
        return mount_at("/dev/null", word[1], NULL, MS_BIND, NULL);
    }
    if (takes(record, "mkdir", 1)) {
        if (mkdir(word[1], 0755) != 0 && errno != EEXIST)
            return bunshin_error_os("cannot make the directory %s", word[1]);
        return NULL;
    }
    if (takes(record, "copy", 2))
        return do_copy(word[1], word[2]);
    if (takes(record, "pivot", 1))
        return do_pivot(word[1]);
    if (takes(record, "loopback", 0))
        return settings->network_host ? NULL : do_loopback();
    if (takes(record, "hostname", 1))
        return sethostname(word[1], strlen(word[1])) ? bunshin_error_os("cannot set the host name %s", word[1]) : NULL;
    if (takes(record, "upper", 1)) {
        settings->upper_fd = open(word[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
        return settings->upper_fd < 0 ? bunshin_error_os("cannot open the upper layer %s", word[1]) : NULL;
    }
    if (takes(record, "env", 1))
        return add_environment(settings, word[1]);
    if (takes(record, "cwd", 1))
        return (settings->cwd = strdup(word[1])) ? NULL : bunshin_error_no_memory();
    if (takes(record, "frozen", 3))
        return frozen_settings(word + 1, settings);
    if (takes(record, "capabilities", 1))
        return settings->capabilities = strtoull(word[1], NULL, 16), NULL;
    if (takes(record, "memory-poll", 1))
        return settings->memory_poll = strtoull(word[1], NULL, 10), NULL;
    if (takes(record, "pids-poll", 1))
        return settings->pids_poll = strtoull(word[1], NULL, 10), NULL;
    if (takes(record, "disk-limit", 1))
        return settings->disk_limit = strtoull(word[1], NULL, 10), NULL;
    if (takes(record, "rlimit", 2)) {
        struct rlimit limit = {strtoull(word[2], NULL, 10), strtoull(word[2], NULL, 10)}, now;
        int which = atoi(word[1]);
        if (which == RLIMIT_FSIZE) /* for tools alone: what pid 1 writes are messages and page stores */
            return settings->file_size_limit = limit.rlim_cur, NULL;
        if (getrlimit((__rlimit_resource_t)which, &now) == 0 && now.rlim_max < limit.rlim_max)
            limit.rlim_cur = limit.rlim_max = now.rlim_max;
        return setrlimit((__rlimit_resource_t)which, &limit) ? bunshin_error_os("cannot set resource limit %s", word[1]) : NULL;
    }
    if (!strncmp(word[0], "cgroup-", 7))
        return NULL; /* the keeper's */
    return bunshin_error_new(BUNSHIN_ERROR_INVALID, EINVAL, "plan holds an unknown record \"%s\" of %u strings",
                             record->count ? word[0] : "", record->count);
}

bool settings_wrote(const struct settings *settings, const char *path) {
    for (int i = 0; i < settings->layer_count; i++) {
        size_t length = strlen(settings->layer[i].mount);
        struct stat info;
        if (strncmp(path, settings->layer[i].mount, length) == 0 && fstatat(settings->layer[i].fd, path + length, &info, 0) == 0)
            return true;
    }
    return false;
}

struct bunshin_error *settings_apply(const uint8_t *plan, size_t size, int without, struct settings *ret) {
    *ret = (struct settings){.upper_fd = -1, .last_pid_fd = -1, .kernel_fd = -1, .network_fd = -1, .layers_as_one_string = without & WITHOUT_OVERLAY_ONE_BY_ONE};
    struct records *records = malloc(sizeof *records);
    if (!records)
        return bunshin_error_no_memory();
    records_init(records, plan, size);
    struct bunshin_error *error = NULL;
    umask(0);
    while (!error && records_next(records))
        if (records->count)
            error = do_record(records, ret);
    umask(022);
    free(records);
    if (!error && !ret->cwd && !(ret->cwd = strdup("/")))
        error = bunshin_error_no_memory();
    return error;
}
