/* Thread-local variables, thread-specific data with destructors, and a thread that starts after the fork. */
#include "victim.h"

static _Thread_local uint64_t own[64];
static _Thread_local uint64_t initial = 0xabcdef;
static pthread_key_t key;
static atomic_int waiting, destroyed;

static void destructor(void *value) { destroyed += *(int *)value == 5; }

static void *thread(void *argument) {
    static int five = 5;
    long self = (long)argument;
    expect(initial == 0xabcdef && own[0] == 0, "a new thread's variables are not new");
    for (int i = 0; i < 64; i++)
        own[i] = pattern((uint64_t)(self * 64 + i));
    uint64_t *address = own;
    pthread_setspecific(key, &five);
    waiting++;
    go();
    expect(own == address && pthread_getspecific(key) == &five, "thread %ld: its variables moved", self);
    for (int i = 0; i < 64; i++)
        expect(own[i] == pattern((uint64_t)(self * 64 + i)), "thread %ld: variable %d", self, i);
    return NULL;
}

int main(void) {
    pthread_t ids[7];
    pthread_key_create(&key, destructor);
    for (long i = 1; i < 6; i++)
        must(-pthread_create(&ids[i], NULL, thread, (void *)i));
    while (waiting < 5)
        nap(0.002);
    ready();
    go();
    must(-pthread_create(&ids[6], NULL, thread, (void *)6l));
    for (int i = 1; i < 7; i++)
        pthread_join(ids[i], NULL);
    expect(destroyed == 6, "%d destructors ran", destroyed);
    ok();
}
