/* Teams: members are threads and processes, kernels are C functions on the CPU, queues do the same; each result is checked. */
#include "test.h"

#include <signal.h>
#include <sys/wait.h>

#define MEMBERS 4
#define ROUNDS 50
#define BOX 5000

/* One member. What its kernels take and what they find. */
struct member {
    gpunet_team_t team;
    gpunet_symmetric_t boxes, words, all;
    unsigned rank;
    long long result;
};

/* In a kernel that fails the host program checks the result. */
#define TRY(expression)                                                                                                          \
    do {                                                                                                                         \
        long long got_ = (long long)(expression);                                                                                \
        if (got_ < 0) {                                                                                                          \
            member->result = got_;                                                                                               \
            return;                                                                                                              \
        }                                                                                                                        \
    } while (0)

/* Puts bytes into the right neighbour's box, round by round; the neighbour says when it has checked them. */
static void ring_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct member *member = (struct member *)argument;
    gpunet_team_t team = member->team;
    unsigned size = team.size, right = (team.rank + 1) % size, left = (team.rank + size - 1) % size;
    unsigned char bytes[BOX], *box = (unsigned char *)gpunet_ptr(team, member->boxes, team.rank);
    (void)net;
    IS(block, 0);
    IS(blocks, 1);
    IS(team.rank, member->rank);
    for (size_t round = 1; round <= ROUNDS; round++) {
        fill(bytes, round * MEMBERS + team.rank, 0, BOX);
        TRY(gpunet_put_signal(team, member->boxes, bytes, BOX, 0, round, right));
        TRY(gpunet_signal_wait(team, 0, left, round, -1));
        same(box, round * MEMBERS + left, 0, BOX);
        if (round % 2) TRY(gpunet_signal_set(team, 1, round, left));
        else TRY(gpunet_signal_add(team, 1, 1, left));
        TRY(gpunet_signal_wait(team, 1, right, round, -1));
    }
    IS(gpunet_signal_test(team, 1, right, ROUNDS), 1);
    IS(gpunet_signal_test(team, 1, right, ROUNDS + 1), 0);
    IS(gpunet_signal_wait(team, 1, right, ROUNDS + 1, 0), -EAGAIN);
    IS(gpunet_signal_wait(team, 1, right, ROUNDS + 1, 1000000), -EAGAIN);
}

static void collectives_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct member *member = (struct member *)argument;
    gpunet_team_t team = member->team;
    unsigned rank = team.rank, size = team.size;
    (void)net, (void)block, (void)blocks;

    /* Copies to everybody, in order behind a barrier; and back. */
    uint32_t mine[MEMBERS], *words = (uint32_t *)gpunet_ptr(team, member->words, rank);
    for (unsigned to = 0; to < size; to++) {
        mine[to] = 100 * rank + to;
        TRY(gpunet_put_nbi(team, gpunet_symmetric_at(member->words, 4 * rank, 4), &mine[to], 4, to));
    }
    TRY(gpunet_quiet(team));
    TRY(gpunet_barrier(team));
    for (unsigned from = 0; from < size; from++) {
        uint32_t got = 0;
        IS(words[from], 100 * from + rank);
        TRY(gpunet_get(team, &got, gpunet_symmetric_at(member->words, 4 * rank, 4), 4, from));
        IS(got, 100 * rank + from);
    }
    TRY(gpunet_fence(team));

    uint32_t *all = (uint32_t *)gpunet_ptr(team, member->all, rank);
    TRY(gpunet_all_gather(team, member->all, mine, sizeof mine));
    for (unsigned from = 0; from < size; from++)
        for (unsigned to = 0; to < size; to++) IS(all[from * size + to], 100 * from + to);
    TRY(gpunet_all_to_all(team, member->all, mine, 4));
    for (unsigned from = 0; from < size; from++) IS(all[from], 100 * from + rank);
    TRY(gpunet_broadcast(team, member->all, rank == 2 ? mine : NULL, sizeof mine, 2));
    for (unsigned to = 0; to < size; to++) IS(all[to], 200 + to);

    /* In place, and into other memory, for each operation. */
    float *numbers = (float *)words;
    for (int operation = GPUNET_SUM; operation <= GPUNET_MAX; operation++) {
        const float wanted[] = {0, 1.5f + 2.5f + 3.5f + 4.5f, 1.5f, 4.5f};
        numbers[0] = (float)rank + 1.5f;
        gpunet_symmetric_t one = gpunet_symmetric_at(member->words, 0, 4);
        TRY(gpunet_reduce(team, GPUNET_FLOAT, operation, gpunet_symmetric_at(member->all, 8, 4), one));
        TRUE(((float *)all)[2] == wanted[operation]);
        TRY(gpunet_reduce(team, GPUNET_FLOAT, operation, one, one));
        TRUE(numbers[0] == wanted[operation]);
    }
    uint64_t *wide = (uint64_t *)words;
    *wide = 1ull << (40 + rank);
    gpunet_symmetric_t eight = gpunet_symmetric_at(member->words, 0, 8);
    TRY(gpunet_reduce(team, GPUNET_UINT64, GPUNET_SUM, eight, eight));
    IS(*wide, 15ull << 40);
}

static void misuse_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct member *member = (struct member *)argument;
    gpunet_team_t team = member->team, none;
    unsigned char byte = 0;
    (void)net, (void)block, (void)blocks;
    memset(&none, 0, sizeof none);
    IS(gpunet_barrier(none), -ENETDOWN);
    TRUE(!gpunet_ptr(none, member->boxes, 0));
    TRUE(!gpunet_ptr(team, member->boxes, team.size));
    IS(gpunet_put(team, member->boxes, &byte, 1, team.size), -EINVAL);
    IS(gpunet_put(team, gpunet_symmetric_at(member->boxes, BOX, 1), &byte, 1, 0), -EINVAL);
    IS(gpunet_put(team, member->boxes, NULL, 1, 0), -EFAULT);
    IS(gpunet_get(team, &byte, gpunet_symmetric_at(member->boxes, BOX, 1), 1, 0), -EINVAL);
    IS(gpunet_get(team, NULL, member->boxes, 1, 0), -EFAULT);
    IS(gpunet_signal_set(team, 16, 1, 0), -EINVAL);
    IS(gpunet_signal_set(team, 0, GPUNET_MAX_SIGNAL + 1, 0), -EINVAL);
    IS(gpunet_signal_wait(team, 0, team.size, 1, -1), -EINVAL);
    IS(gpunet_reduce(team, 9, GPUNET_SUM, member->words, member->words), -EINVAL);
    IS(gpunet_reduce(team, GPUNET_FLOAT, 4, member->words, member->words), -EINVAL);
    gpunet_symmetric_t odd = gpunet_symmetric_at(member->words, 2, 4);
    IS(gpunet_reduce(team, GPUNET_FLOAT, GPUNET_SUM, odd, odd), -EINVAL);
    /* Nobody else comes. */
    team.timeout_ns = 1000000;
    IS(gpunet_barrier(team), -EAGAIN);
}

static void late_kernel(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct member *member = (struct member *)argument;
    (void)net, (void)block, (void)blocks;
    member->result = gpunet_signal_wait(member->team, 3, 1, 1, -1);
}

/* Runs a kernel and returns its result. */
static long long run(gpunet_host_attachment_t *attachment, gpunet_host_team_t *team, gpunet_host_kernel_fn kernel, struct member *member) {
    gpunet_host_token_t *token = NULL;
    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_team_value(team, token, &member->team));
    member->result = 0;
    OK(gpunet_host_token_launch(token, 1, kernel, member));
    OK(gpunet_host_token_wait(token, 60000000000));
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));
    return member->result;
}

/* The same by a queue, in its order. */
static void by_queue(gpunet_host_attachment_t *attachment, gpunet_host_team_t *team, gpunet_host_symmetric_t *boxes, gpunet_host_symmetric_t *all) {
    unsigned rank = (unsigned)gpunet_host_team_rank(team), right = (rank + 1) % MEMBERS, left = (rank + MEMBERS - 1) % MEMBERS;
    unsigned char out[BOX], back[BOX];
    uint32_t mine[MEMBERS], got[MEMBERS * MEMBERS];
    uint64_t own = 0;
    gpunet_host_queue_t *queue = NULL, *other = NULL;
    gpunet_host_queue_report outcome;
    OK(gpunet_host_queue_cpu(attachment, &queue));
    OK(gpunet_host_queue_set_team_timeout(queue, 60000000000));

    /* Bytes to the right, all but the first 8; each neighbour says when it has looked. */
    for (size_t round = 1; round <= 3; round++) {
        fill(out, 7 * round + rank, 0, BOX);
        if (round == 3) {
            OK(gpunet_host_queue_put(queue, boxes, 8, out, BOX - 8, right));
            OK(gpunet_host_queue_signal(queue, team, 4, round, right));
        } else {
            OK(gpunet_host_queue_put_signal(queue, boxes, 8, out, BOX - 8, 4, round, right));
        }
        OK(gpunet_host_queue_wait_until(queue, team, 4, left, round));
        OK(gpunet_host_queue_synchronize(queue, -1));
        OK(gpunet_host_symmetric_read(boxes, 8, back, BOX - 8));
        same(back, 7 * round + left, 0, BOX - 8);
        OK(gpunet_host_queue_signal(queue, team, 5, round, left));
        OK(gpunet_host_queue_wait_until(queue, team, 5, right, round));
        OK(gpunet_host_queue_synchronize(queue, -1));
    }

    for (unsigned to = 0; to < MEMBERS; to++) mine[to] = 1000 * rank + to;
    OK(gpunet_host_queue_barrier(queue, team));
    OK(gpunet_host_queue_all_gather(queue, all, 0, mine, sizeof mine));
    OK(gpunet_host_queue_synchronize(queue, -1));
    OK(gpunet_host_symmetric_read(all, 0, got, sizeof got));
    for (unsigned from = 0; from < MEMBERS; from++)
        for (unsigned to = 0; to < MEMBERS; to++) IS(got[from * MEMBERS + to], 1000 * from + to);
    /* Out of place and from a member's own part; only the root has something to give. */
    OK(gpunet_host_queue_broadcast(queue, all, 16, rank == 1 ? mine : NULL, sizeof mine, 1));
    OK(gpunet_host_queue_all_to_all(queue, all, 32, mine, 4));
    OK(gpunet_host_symmetric_address(all, rank, &own));
    OK(gpunet_host_queue_put(queue, boxes, 0, (void *)(uintptr_t)(own + 16), 4, rank));
    OK(gpunet_host_queue_synchronize(queue, -1));
    OK(gpunet_host_symmetric_read(all, 16, got, 32));
    for (unsigned at = 0; at < MEMBERS; at++) {
        IS(got[at], 1000 + at);
        IS(got[MEMBERS + at], 1000 * at + rank);
    }
    OK(gpunet_host_symmetric_read(boxes, 0, got, 4));
    IS(got[0], 1000);

    /* What cannot be is not enqueued. */
    IS(gpunet_host_queue_put(queue, boxes, 8, out, BOX - 7, right), -EINVAL);
    REASON("do not fit");
    IS(gpunet_host_queue_put(queue, boxes, BOX + 1, out, 0, right), -EINVAL);
    REASON("are not inside the part");
    IS(gpunet_host_queue_put(queue, boxes, 0, NULL, 1, right), -EFAULT);
    IS(gpunet_host_queue_put(queue, boxes, 0, out, 1, MEMBERS), -EINVAL);
    REASON("there is no member 4");
    IS(gpunet_host_queue_put(queue, NULL, 0, out, 1, right), -EBADF);
    IS(gpunet_host_queue_put_signal(queue, boxes, 0, out, 1, 16, 1, right), -EINVAL);
    REASON("there is no signal 16");
    IS(gpunet_host_queue_signal(queue, team, 4, GPUNET_MAX_SIGNAL + 1, right), -EINVAL);
    IS(gpunet_host_queue_wait_until(queue, team, 4, MEMBERS, 1), -EINVAL);
    IS(gpunet_host_queue_barrier(queue, NULL), -EBADF);
    IS(gpunet_host_queue_broadcast(queue, all, 32, NULL, sizeof mine, rank), -EFAULT);
    IS(gpunet_host_queue_broadcast(queue, all, 56, NULL, sizeof mine, right), -EINVAL);
    IS(gpunet_host_queue_all_gather(queue, all, 4, mine, sizeof mine), -EINVAL);
    IS(gpunet_host_queue_all_to_all(queue, all, 0, mine, ~(size_t)0), -EINVAL);
    OK(gpunet_host_queue_outcome(queue, &outcome));
    IS(outcome.error, 0);

    /* One queue at a time has collectives under way; and a wait for what nobody sends ends with its time. */
    if (rank == 0) {
        OK(gpunet_host_queue_cpu(attachment, &other));
        OK(gpunet_host_queue_set_team_timeout(other, 20000000));
        OK(gpunet_host_queue_wait_until(other, team, 6, 1, 1));
        OK(gpunet_host_queue_wait_until(queue, team, 7, 0, 1));
        OK(gpunet_host_queue_barrier(queue, team));
        IS(gpunet_host_queue_barrier(other, team), -EBUSY);
        REASON("another queue");
        IS(gpunet_host_queue_synchronize(other, -1), -ETIMEDOUT);
        OK(gpunet_host_queue_signal(other, team, 7, 1, 0));
        IS(gpunet_host_queue_synchronize(other, -1), -ETIMEDOUT);
        OK(gpunet_host_queue_destroy(other));
    } else {
        OK(gpunet_host_queue_barrier(queue, team));
    }
    OK(gpunet_host_queue_synchronize(queue, -1));
    OK(gpunet_host_queue_destroy(queue));
}

/* All of it, as one member of four. */
static void take_part(gpunet_host_attachment_t *attachment, gpunet_host_team_t *team, unsigned rank) {
    struct member member;
    memset(&member, 0, sizeof member);
    member.rank = rank;
    IS(gpunet_host_team_rank(team), rank);
    IS(gpunet_host_team_size(team), MEMBERS);
    gpunet_host_symmetric_t *boxes = NULL, *words = NULL, *all = NULL;
    OK(gpunet_host_symmetric_alloc(team, BOX, &boxes));
    OK(gpunet_host_symmetric_alloc(team, 4 * MEMBERS, &words));
    OK(gpunet_host_symmetric_alloc(team, 4 * MEMBERS * MEMBERS, &all));
    OK(gpunet_host_symmetric_value(boxes, &member.boxes));
    OK(gpunet_host_symmetric_value(words, &member.words));
    OK(gpunet_host_symmetric_value(all, &member.all));
    IS(member.boxes.len, BOX);
    OK(run(attachment, team, ring_kernel, &member));
    OK(gpunet_host_team_barrier(team));
    OK(run(attachment, team, collectives_kernel, &member));
    OK(gpunet_host_team_barrier(team));
    if (rank == 0) OK(run(attachment, team, misuse_kernel, &member));
    OK(gpunet_host_team_barrier(team));

    by_queue(attachment, team, boxes, all);
    OK(gpunet_host_team_barrier(team));

    /* The host's view of its own part. */
    char bytes[8];
    OK(gpunet_host_symmetric_write(boxes, 4, "team", 4));
    OK(gpunet_host_symmetric_read(boxes, 4, bytes, 4));
    IS(memcmp(bytes, "team", 4), 0);
    IS(gpunet_host_symmetric_write(boxes, BOX - 3, "team", 4), -EINVAL);
    REASON("are not inside the part");
    uint64_t own = 0, last = 0;
    OK(gpunet_host_symmetric_address(boxes, rank, &own));
    OK(gpunet_host_symmetric_address(boxes, MEMBERS - 1, &last));
    IS(memcmp((void *)(uintptr_t)(own + 4), "team", 4), 0);
    IS(gpunet_host_symmetric_address(boxes, MEMBERS, &own), -EINVAL);

    /* Lengths that differ: nobody gets memory, and the team goes on. */
    gpunet_host_symmetric_t *none = NULL;
    IS(gpunet_host_symmetric_alloc(team, 8 + rank, &none), -EINVAL);
    TRUE(!none);

    /* The even and the odd ones. */
    gpunet_host_team_t *half = NULL;
    OK(gpunet_host_team_split(team, rank % 2, 0, &half));
    IS(gpunet_host_team_size(half), MEMBERS / 2);
    IS(gpunet_host_team_rank(half), rank / 2);
    OK(gpunet_host_team_leave(half));

    IS(gpunet_host_team_leave(team), -EBUSY);
    REASON("gpunet_host_symmetric_free");
    OK(gpunet_host_symmetric_free(boxes));
    OK(gpunet_host_symmetric_free(words));
    OK(gpunet_host_symmetric_free(all));
    IS(gpunet_host_symmetric_free(all), -EBADF);
    OK(gpunet_host_team_leave(team));
    IS(gpunet_host_team_leave(team), -EBADF);
}

static const gpunet_host_team_options options = {16, 0, 20000000000};

struct thread {
    gpunet_host_proxy_t *proxy;
    char *id;
    unsigned rank;
    pthread_t thread;
};

static void *member_thread(void *argument) {
    struct thread *thread = (struct thread *)argument;
    gpunet_host_attachment_t *attachment = attachment_new(thread->proxy);
    gpunet_host_team_t *team = NULL;
    OK(gpunet_host_team_join(attachment, thread->id, thread->rank, MEMBERS, &options, &team));
    take_part(attachment, team, thread->rank);
    OK(gpunet_host_attachment_close(attachment, NULL));
    return NULL;
}

/* Members of one program, which meet at a listener. */
static void as_threads(void) {
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    gpunet_host_team_listener_t *listener = NULL;
    gpunet_host_team_t *team = NULL;
    struct thread threads[MEMBERS];
    struct sockaddr_in place = loopback(0), any = loopback(0);
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    IS(gpunet_host_team_listen(ADDRESS(any), &listener), -EINVAL);
    OK(gpunet_host_team_listen(ADDRESS(place), &listener));
    char *id = NULL;
    OK(gpunet_host_team_id(listener, &id));
    for (unsigned rank = 1; rank < MEMBERS; rank++) {
        struct thread one = {proxy, id, rank, 0};
        threads[rank] = one;
        start(&threads[rank].thread, member_thread, &threads[rank]);
    }
    OK(gpunet_host_team_lead(attachment, listener, MEMBERS, &options, &team));
    IS(gpunet_host_team_listener_close(listener), -EBADF);
    take_part(attachment, team, 0);
    for (unsigned rank = 1; rank < MEMBERS; rank++) OK(pthread_join(threads[rank].thread, NULL));

    IS(gpunet_host_team_join(attachment, "127.0.0.1:7000", 0, 1, NULL, &team), -EINVAL);
    REASON("no team id");
    IS(gpunet_host_team_join(attachment, NULL, 0, 1, NULL, &team), -EFAULT);
    IS(gpunet_host_team_join(attachment, id, 2, 2, NULL, &team), -EINVAL);
    unsetenv("RANK");
    IS(gpunet_host_team_launched(attachment, NULL, &team), -ENOENT);
    REASON("no launcher");
    gpunet_host_free_string(id);
    OK(gpunet_host_attachment_close(attachment, NULL));
    OK(gpunet_host_proxy_close(proxy));
}

/* A program that a launcher has started. */
static int launched(unsigned rank, const char *id, int dies) {
    char text[16];
    snprintf(text, sizeof text, "%u", rank);
    setenv("RANK", text, 1);
    setenv("WORLD_SIZE", dies ? "2" : "4", 1);
    setenv("GPUNET_TEAM", id, 1);
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    gpunet_host_team_t *team = NULL;
    OK(gpunet_host_team_launched(attachment, &options, &team));
    if (!dies) {
        take_part(attachment, team, rank);
    } else if (rank == 1) {
        kill(getpid(), SIGKILL);
    } else {
        struct member member;
        memset(&member, 0, sizeof member);
        gpunet_host_queue_t *queue = NULL;
        OK(gpunet_host_queue_cpu(attachment, &queue));
        int enqueued = gpunet_host_queue_wait_until(queue, team, 3, 1, 1);
        IS(run(attachment, team, late_kernel, &member), -ECONNRESET);
        /* The death may have been known before the wait was enqueued. */
        if (enqueued == 0) enqueued = gpunet_host_queue_synchronize(queue, -1);
        IS(enqueued, -ECONNRESET);
        IS(gpunet_host_queue_signal(queue, team, 3, 1, 0), -ECONNRESET);
        REASON("member 1 has died");
        OK(gpunet_host_queue_destroy(queue));
        IS(gpunet_host_team_barrier(team), -ECONNRESET);
        REASON("member 1 has died");
        IS(gpunet_host_team_leave(team), -ECONNRESET);
    }
    OK(gpunet_host_attachment_close(attachment, NULL));
    OK(gpunet_host_proxy_close(proxy));
    return 0;
}

/* Programs of their own, one for each member. The library's calls are made in these alone: fork comes first. */
static void as_processes(unsigned size, int dies) {
    char id[64];
    pid_t children[MEMBERS];
    /* A free port, and a number that no other team has. */
    struct sockaddr_in place = loopback(0);
    socklen_t len = sizeof place;
    int finder = socket(AF_INET, SOCK_STREAM, 0);
    OK(bind(finder, (struct sockaddr *)&place, sizeof place));
    OK(getsockname(finder, (struct sockaddr *)&place, &len));
    OK(close(finder));
    snprintf(id, sizeof id, "127.0.0.1:%u/%032x", ntohs(place.sin_port), (unsigned)getpid() * 2 + (unsigned)dies);
    for (unsigned rank = 0; rank < size; rank++) {
        children[rank] = fork();
        TRUE(children[rank] >= 0);
        if (children[rank] == 0) {
            alarm(120);
            exit(launched(rank, id, dies));
        }
    }
    for (unsigned rank = 0; rank < size; rank++) {
        int status = 0;
        IS(waitpid(children[rank], &status, 0), children[rank]);
        if (dies && rank == 1) IS(WTERMSIG(status), SIGKILL);
        else IS(status, 0);
    }
}

int main(void) {
    as_processes(MEMBERS, 0);
    as_processes(2, 1);
    begin();
    as_threads();
    return end("teams");
}
