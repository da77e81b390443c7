/* Users, groups and capabilities. Where the workspace may change users, a child is somebody else, with groups of his own. */
#include "victim.h"
#include <grp.h>
#include <linux/capability.h>

struct who {
    uid_t u[3];
    gid_t g[3];
    int group_count;
    gid_t groups[64];
    struct __user_cap_data_struct caps[2];
    int no_new_privs, dumpable, keepcaps;
};

static struct who look(void) {
    struct who who;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    memset(&who, 0, sizeof who);
    must(getresuid(&who.u[0], &who.u[1], &who.u[2]));
    must(getresgid(&who.g[0], &who.g[1], &who.g[2]));
    who.group_count = (int)must(getgroups(64, who.groups));
    must(syscall(SYS_capget, &header, who.caps));
    who.no_new_privs = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    who.dumpable = prctl(PR_GET_DUMPABLE);
    who.keepcaps = prctl(PR_GET_KEEPCAPS);
    return who;
}

int main(void) {
    int pipes[2];
    must(pipe(pipes));
    pid_t child = fork();
    if (child == 0) {
        static const gid_t groups[] = {5, 100, 4000};
        if (getuid() == 0 && setgroups(3, groups) == 0 && setresgid(33, 34, 35) == 0)
            must(setresuid(1000, 1001, 1000));
        struct who before = look();
        must(write(pipes[1], "x", 1));
        while (access(victim_path("go"), F_OK) != 0)
            nap(0.01);
        struct who after = look();
        expect(!memcmp(&before, &after, sizeof before), "the other user: uid %d %d %d, gid %d %d %d, %d groups, dumpable %d", after.u[0], after.u[1],
               after.u[2], after.g[0], after.g[1], after.g[2], after.group_count, after.dumpable);
        _exit(0);
    }
    char x;
    must(read(pipes[0], &x, 1));
    struct who before = look();
    char effective[256];
    snprintf(effective, sizeof effective, "%s", status_of("CapBnd"));
    ready();
    go();
    struct who after = look();
    expect(!memcmp(&before, &after, sizeof before), "uid %d %d %d, gid %d %d %d, %d groups, caps %x, no_new_privs %d", after.u[0], after.u[1], after.u[2],
           after.g[0], after.g[1], after.g[2], after.group_count, after.caps[0].effective, after.no_new_privs);
    expect(!strcmp(effective, status_of("CapBnd")), "the bounding set was %s", effective);
    child_ends_well(child);
    ok();
}
