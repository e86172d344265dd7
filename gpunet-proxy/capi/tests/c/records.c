/* Records and printed lines of kernels in C on the CPU: how they are written, read and counted. */
#include "test.h"

#include <gpunet_records.h>

#define STEP 7

struct job {
    gpunet_records_t records;
    unsigned int count;
    volatile int go;
};

static void work(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct job *job = (struct job *)argument;
    struct gpunet_recorder recorder = gpunet_recorder_open(net, job->records, block);
    gprintf(&recorder, "block %u of %u has started", block, blocks);
    for (unsigned int step = 0; step < job->count; step++) {
        unsigned int words[2] = {step, step * 3};
        TRUE(gpunet_record(&recorder, STEP, words, 2));
    }
    TRUE(gpunet_record_bytes(&recorder, STEP + 1, "five!", 5));
    /* What cannot be is not written. */
    char much[600] = {0};
    IS(gpunet_record_bytes(&recorder, STEP, much, sizeof much), 0);
    IS(gpunet_record(&recorder, 0, NULL, 0), 0);
    IS(gpunet_record(&recorder, 32768, NULL, 0), 0);
    IS(gpunet_record(&recorder, GPUNET_RECORD_BEGIN, NULL, 0), 0);
    TRUE(gpunet_record_begin(&recorder, "outer"));
    TRUE(gpunet_record_begin(&recorder, "inner"));
    TRUE(gpunet_record_count(&recorder, "depth", -2));
    TRUE(gpunet_record_end(&recorder, "inner"));
    TRUE(gpunet_record_end(&recorder, "outer"));
    gprintf_at(&recorder, GPUNET_WARN, "%d|%5.2f|%-4d|%#lx", -5, 2.5, 3, 0xabcul);
    gprintf_at(&recorder, GPUNET_DEBUG, "not wanted: %d", 1);
    for (int line = 0; line < 50; line++) gprintf_limit(&recorder, GPUNET_INFO, 1, "often %d", line);
    /* Nothing more is written, and nothing is closed: as if it hung. */
    while (!job->go) usleep(100);
    gpunet_recorder_close(&recorder);
}

struct heard {
    unsigned int steps[4], marks[4], lines, started, odd;
    uint64_t before[4];
    gpunet_host_records_t *records;
};

static void hear(const gpunet_host_record *record, void *user) {
    struct heard *heard = (struct heard *)user;
    IS(gpunet_host_records_read(heard->records, hear, user), -EBUSY);
    TRUE(record->block < 3);
    IS(record->sm, 65535);
    TRUE(record->time_ns >= heard->before[record->block]);
    heard->before[record->block] = record->time_ns;
    if (record->kind == STEP) {
        const unsigned int *words = (const unsigned int *)record->payload;
        IS(record->payload_len, 8);
        TRUE(!record->text);
        IS(words[0], heard->steps[record->block]++);
        IS(words[1], words[0] * 3);
    } else if (record->kind == STEP + 1) {
        IS(record->payload_len, 5);
        IS(memcmp(record->payload, "five!", 5), 0);
    } else if (record->kind < 32768) {
        /* The spans and the counter of a block, in their order. */
        static const struct {
            unsigned int kind, len;
            const char *name;
        } wanted[5] = {{GPUNET_RECORD_BEGIN, 4, "outer"}, {GPUNET_RECORD_BEGIN, 4, "inner"}, {GPUNET_RECORD_COUNT, 12, "depth"},
                       {GPUNET_RECORD_END, 4, "inner"}, {GPUNET_RECORD_END, 4, "outer"}};
        const unsigned int at = heard->marks[record->block]++;
        TRUE(at < 5);
        IS(record->kind, wanted[at].kind);
        IS(record->payload_len, wanted[at].len);
        TRUE(record->text);
        IS(strcmp(record->text, wanted[at].name), 0);
        if (at == 2) IS(*(const int *)((const char *)record->payload + 4), -2);
    } else {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "block %u of 3 has started", record->block);
        heard->lines++;
        const int is_start = strcmp(record->text, wanted) == 0, is_odd = strcmp(record->text, "-5| 2.50|3   |0xabc") == 0;
        heard->started += (unsigned int)is_start;
        heard->odd += (unsigned int)is_odd;
        IS(record->level, is_odd ? GPUNET_WARN : GPUNET_INFO);
        TRUE(is_start || is_odd || strstr(record->text, "often ") == record->text);
    }
}

/* What kernels say is read while they hang, by the calls alone. */
static void reads(gpunet_host_attachment_t *attachment) {
    gpunet_host_records_settings settings = {3, 0, 0, 0, 0, 0, 0};
    gpunet_host_records_t *records = NULL;
    gpunet_host_records_counts counts;
    struct job job = {.count = 500, .go = 0};
    struct heard heard = {.lines = 0};
    gpunet_host_token_t *token = NULL;
    OK(gpunet_host_records(attachment, &settings, &records));
    OK(gpunet_host_records_value(records, &job.records));
    heard.records = records;
    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_token_launch(token, 3, work, &job));
    /* Of each block 500 steps, a record of bytes, five of spans and a counter, and three lines or more. */
    do {
        TRUE(gpunet_host_records_read(records, hear, &heard) >= 0);
        OK(gpunet_host_records_count(records, &counts));
    } while (counts.records < 3 * 508 + 1 || heard.started < 3 || heard.odd < 3);
    IS(gpunet_host_token_wait(token, 0), -ETIMEDOUT);
    for (int block = 0; block < 3; block++) {
        IS(heard.steps[block], 500);
        IS(heard.marks[block], 5);
    }
    job.go = 1;
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));
    while (gpunet_host_records_read(records, hear, &heard) > 0) continue;
    OK(gpunet_host_records_count(records, &counts));
    IS(counts.overwritten + counts.refused + counts.malformed, 0);
    OK(gpunet_host_records_close(records));
    IS(gpunet_host_records_close(records), -EBADF);
    IS(gpunet_host_records_read(records, hear, &heard), -EBADF);
}

static void floods(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct job *job = (struct job *)argument;
    struct gpunet_recorder recorder = gpunet_recorder_open(net, job->records, block);
    (void)blocks;
    for (unsigned int step = 0; step < job->count; step++) gpunet_record(&recorder, STEP, &step, 1);
    gpunet_recorder_close(&recorder);
}

/* Each text takes a number, and those that get none are counted. */
static void texts(uint64_t net, uint32_t block, uint32_t blocks, void *argument) {
    struct job *job = (struct job *)argument;
    struct gpunet_recorder recorder = gpunet_recorder_open(net, job->records, block);
    (void)blocks;
    for (int round = 0; round < 2; round++) {
        gprintf(&recorder, "one");
        gprintf(&recorder, "two %d", 2);
        gprintf(&recorder, "three");
    }
    gpunet_recorder_close(&recorder);
}

static void counts_one(const gpunet_host_record *record, void *user) {
    (void)record;
    ++*(uint64_t *)user;
}

/* Every record is read or counted: rings that overwrite, rings that wait, too few rings. */
static void counted(gpunet_host_attachment_t *attachment, gpunet_host_records_settings settings, gpunet_host_kernel_fn kernel, unsigned int blocks,
                    unsigned int count, uint64_t written, gpunet_host_records_counts *counts) {
    gpunet_host_records_t *records = NULL;
    struct job job = {.count = count, .go = 1};
    gpunet_host_token_t *token = NULL;
    uint64_t heard = 0;
    OK(gpunet_host_records(attachment, &settings, &records));
    OK(gpunet_host_records_value(records, &job.records));
    OK(gpunet_host_token(attachment, &token));
    OK(gpunet_host_token_launch(token, blocks, kernel, &job));
    int waited;
    while ((waited = gpunet_host_token_wait(token, 1000000)) != 0) {
        IS(waited, -ETIMEDOUT);
        if (settings.flags) TRUE(gpunet_host_records_read(records, counts_one, &heard) >= 0);
    }
    OK(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, NULL));
    while (gpunet_host_records_read(records, counts_one, &heard) > 0) continue;
    OK(gpunet_host_records_count(records, counts));
    IS(heard, counts->records);
    IS(counts->records + counts->overwritten + counts->refused, written);
    OK(gpunet_host_records_close(records));
}

static void misuse(gpunet_host_attachment_t *attachment) {
    gpunet_host_records_t *records = NULL;
    gpunet_host_records_settings none = {0, 0, 0, 0, 0, 0, 0}, long_payload = {1, 0, 1000, 0, 0, 0, 0}, level = {1, 0, 0, 0, 6, 0, 0},
                                 flags = {1, 0, 0, 0, 0, 2, 0}, texts_settings = {1, 0, 0, 40000, 0, 0, 0};
    IS(gpunet_host_records(attachment, &none, &records), -EINVAL);
    REASON("one for each block");
    IS(gpunet_host_records(attachment, &long_payload, &records), -EINVAL);
    REASON("492 bytes");
    IS(gpunet_host_records(attachment, &level, &records), -EINVAL);
    IS(gpunet_host_records(attachment, &flags, &records), -EINVAL);
    IS(gpunet_host_records(attachment, &texts_settings, &records), -EINVAL);
    REASON("32768 at most");
    IS(gpunet_host_records(attachment, NULL, &records), -EFAULT);
    gpunet_host_records_settings one = {1, 0, 0, 0, 0, 0, 0};
    OK(gpunet_host_records(attachment, &one, &records));
    IS(gpunet_host_records_read(records, NULL, NULL), -EFAULT);
    IS(gpunet_host_records_value(records, NULL), -EFAULT);
    OK(gpunet_host_records_close(records));
}

int main(void) {
    begin();
    gpunet_host_proxy_t *proxy = proxy_new();
    gpunet_host_attachment_t *attachment = attachment_new(proxy);
    gpunet_host_records_counts counts;
    reads(attachment);
    gpunet_host_records_settings small = {2, 64, 0, 0, 0, 0, 0}, few = {2, 64, 0, 2, 0, 0, 0};
    counted(attachment, small, floods, 2, 10000, 20000, &counts);
    IS(counts.records, 128);
    IS(counts.overwritten, 20000 - 128);
    counted(attachment, small, floods, 1, 10, 10, &counts);
    IS(counts.records, 10);
    small.flags = GPUNET_HOST_RECORDS_WAIT;
    small.wait_ns = -1;
    counted(attachment, small, floods, 2, 10000, 20000, &counts);
    IS(counts.records, 20000);
    /* Nobody reads in time: what finds no room is counted. */
    small.wait_ns = 0;
    counted(attachment, small, floods, 2, 100, 200, &counts);
    TRUE(counts.records >= 128);
    counted(attachment, few, texts, 1, 0, 6, &counts);
    IS(counts.records, 4);
    IS(counts.refused, 2);
    misuse(attachment);
    OK(gpunet_host_attachment_close(attachment, NULL));
    OK(gpunet_host_proxy_close(proxy));
    return end("records");
}
