/* A thread with rights of its own: it has given up what the others may. Kept, or refused by name. */
#include "victim.h"
#include <linux/capability.h>

static atomic_int apart, over;

static struct __user_cap_data_struct rights(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    must(syscall(SYS_capget, &header, sets));
    return sets[0];
}

static void *thread(void *argument) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    must(syscall(SYS_capset, &header, none)); /* of this thread alone */
    apart = 1;
    while (!over)
        nap(0.005);
    expect(!rights().permitted, "the thread may %x", rights().permitted);
    return argument;
}

int main(void) {
    pthread_t id;
    must(-pthread_create(&id, NULL, thread, NULL));
    while (!apart)
        nap(0.001);
    expect(rights().permitted, "the workspace gives no rights");
    ready();
    go();
    expect(rights().permitted, "we may nothing");
    over = 1;
    must(-pthread_join(id, NULL));
    ok();
}
