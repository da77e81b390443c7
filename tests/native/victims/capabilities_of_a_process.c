/* Capabilities, where the workspace gives any: the bounding set made smaller, inheritable and ambient ones, and secure bits. */
#include "victim.h"
#include <linux/capability.h>
#include <linux/securebits.h>

struct rights {
    struct __user_cap_data_struct sets[2];
    int securebits, keep;
    char bounding[32], ambient[32];
};

static struct rights look(void) {
    struct rights rights;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    memset(&rights, 0, sizeof rights);
    must(syscall(SYS_capget, &header, rights.sets));
    rights.securebits = prctl(PR_GET_SECUREBITS);
    rights.keep = prctl(PR_GET_KEEPCAPS);
    snprintf(rights.bounding, sizeof rights.bounding, "%s", status_of("CapBnd"));
    snprintf(rights.ambient, sizeof rights.ambient, "%s", status_of("CapAmb"));
    return rights;
}

static void change(int which) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    must(syscall(SYS_capget, &header, sets));
    if (!(sets[0].permitted >> CAP_SETPCAP & 1)) { /* a workspace without capabilities: this much is anybody's */
        must(prctl(PR_SET_KEEPCAPS, 1));
        return;
    }
    must(prctl(PR_CAPBSET_DROP, CAP_CHOWN));
    must(prctl(PR_CAPBSET_DROP, CAP_NET_RAW));
    sets[0].inheritable = 1u << CAP_KILL | 1u << CAP_FOWNER;
    must(syscall(SYS_capset, &header, sets));
    must(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0));
    must(prctl(PR_SET_SECUREBITS, which ? SECBIT_NO_SETUID_FIXUP | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NOROOT_LOCKED : SECBIT_KEEP_CAPS));
    sets[0].effective = 1u << CAP_KILL;
    sets[0].permitted = 1u << CAP_KILL | 1u << CAP_SETUID;
    must(syscall(SYS_capset, &header, sets));
}

static void same(const char *who, const struct rights *before) {
    struct rights after = look();
    expect(!memcmp(before, &after, sizeof after), "%s: effective %x (%x), permitted %x (%x), inheritable %x (%x), bounding %s (%s), ambient %s (%s), bits %x (%x)",
           who, after.sets[0].effective, before->sets[0].effective, after.sets[0].permitted, before->sets[0].permitted, after.sets[0].inheritable,
           before->sets[0].inheritable, after.bounding, before->bounding, after.ambient, before->ambient, after.securebits, before->securebits);
}

int main(void) {
    int fds[2];
    char x;
    must(pipe(fds));
    pid_t child = fork();
    if (child == 0) {
        change(1);
        struct rights before = look();
        must(write(fds[1], "x", 1));
        while (access(victim_path("go"), F_OK) != 0)
            nap(0.01);
        same("the child", &before);
        _exit(0);
    }
    must(read(fds[0], &x, 1));
    change(0);
    struct rights before = look();
    ready();
    go();
    same("we", &before);
    child_ends_well(child);
    ok();
}
