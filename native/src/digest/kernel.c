/* What the kernel keeps for the workspace and no file or process holds: System V and POSIX objects, mounts, names. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/procfs.h"
#include "digest/digest.h"
#include "fork/capture.h"

static bool has_sysv(struct init *init) {
    static const char *const lists[] = {"sysvipc/shm", "sysvipc/sem", "sysvipc/msg"};
    struct buffer text = {0};
    bool found = false;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (procfs_read(init->proc, lists[i], &text)) {
            const char *line = strchr((char *)text.data, '\n'); /* the first is a heading */
            found |= line && line[1];
        }
    buffer_deinit(&text);
    return found;
}

static bool has_queues(void) {
    int mount = mqueue_directory(), fd = mount < 0 ? -1 : openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    bool found = false;
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        found |= *entry->d_name != '.';
    if (stream)
        closedir(stream);
    return found;
}

/* Data that was sent and not taken, or connections that were made and not accepted: only the network's own tables tell. */
static bool has_queued(struct init *init) {
    static const char *const lists[] = {"self/net/tcp", "self/net/tcp6", "self/net/udp", "self/net/udp6"};
    struct buffer text = {0};
    bool found = false;
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !init->settings.network_host; i++) {
        if (!procfs_read(init->proc, lists[i], &text))
            continue;
        for (const char *line = strchr((char *)text.data, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
            unsigned state, sent, received;
            if (sscanf(line, " %*d: %*s %*s %x %x:%x", &state, &sent, &received) == 3)
                found |= state != 6 /* it only waits for its number to be free again */ && (sent || received);
        }
    }
    buffer_deinit(&text);
    return found;
}

/* Tools can mount only where they have the right to; what such mounts hold is not looked at. */
static bool has_mounts(struct init *init) {
    struct mountinfo now = {0};
    if (!(init->settings.capabilities >> CAP_SYS_ADMIN & 1))
        return false;
    struct bunshin_error *error = mountinfo_read(init->proc, "self", &now);
    bool more = error || now.count != init->mounts.count;
    bunshin_error_destroy(error);
    mountinfo_deinit(&now);
    return more;
}

struct bunshin_error *kernel_digest(struct digest *digest, struct hash *ret) {
    struct hash_state state;
    struct utsname names;
    bool sysv = has_sysv(digest->init), queues = has_queues(), mounts = has_mounts(digest->init);
    bool queued = has_queued(digest->init);
    hash_init(&state);
    if (uname(&names) == 0)
        hash_text(&state, names.nodename, strlen(names.nodename));
    hash_number(&state, (uint64_t)sysv << 2 | (uint64_t)queues << 1 | mounts);
    if (sysv)
        TRY(digest_unique(digest, "System V objects"));
    if (queues)
        TRY(digest_unique(digest, "POSIX message queues"));
    if (mounts)
        TRY(digest_unique(digest, "mounts made inside"));
    if (queued)
        TRY(digest_unique(digest, "data in sockets that nobody has taken"));
    digest->by_history |= sysv || queues || mounts || queued;
    *ret = hash_end(&state);
    return NULL;
}
