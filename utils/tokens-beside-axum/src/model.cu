// A step of the model of gpunet-tokens (apps/tokens/model), for one CUDA graph launch.
//
// A thread block takes a tile: rows that it computes from the embedding to the next token, up to 8 at a time. The rows of a
// sequence's prompt are in one tile, so blocks need nothing of each other. Keys and values are f32, as in the kernel that this is compared
// with. No header is included, so that nvrtc needs no path.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int VOCABULARY = 256, CONTEXT = 512, LAYERS = 3, HEADS = 4, HEAD = 32, WIDTH = 128, HIDDEN = 384;
constexpr int THREADS = 512, WARPS = THREADS / 32;
constexpr float SCORE_SCALE = 8.0f, EPSILON = 1.0f / 65536.0f, MIN_TEMPERATURE = 1.0f / 1024.0f;
constexpr u32 ALL = 0xffffffffu;

// Matrices [inputs][outputs] of halves, one after another: the host stores them in this order.
constexpr int EMBEDDING = 0, UNEMBEDDING = EMBEDDING + VOCABULARY * WIDTH, FIRST_LAYER = UNEMBEDDING + WIDTH * VOCABULARY;
constexpr int QKV = 0, OUT = QKV + WIDTH * 3 * WIDTH, UP = OUT + WIDTH * WIDTH, DOWN = UP + WIDTH * HIDDEN, LAYER = DOWN + HIDDEN * WIDTH;
// Of a sequence and a layer: keys [WIDTH][CONTEXT], values [CONTEXT][WIDTH].
constexpr int KEYS = WIDTH * CONTEXT;

// What the host writes in pinned memory (src/step.rs).
struct Row { u32 sequence, position, token; float temperature; u64 seed; u64 reserved; };
struct Tile { u32 first, rows; };

template <int R> struct Room {
    float x[R][WIDTH];       // what passes from layer to layer
    float h[R][WIDTH];       // the same, normalized; and what attention gives
    float q[R][WIDTH];
    float hidden[R][HIDDEN];
    float part[R * 512 + 64]; // sums of products by parts of their inputs, and of attention by parts of the keys
};

__device__ inline float warp_sum(float value) {
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(ALL, value, lanes);
    return value;
}

__device__ inline float half_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ inline void eight_halves(const unsigned short *from, float (&to)[8]) {
    uint4 raw = *reinterpret_cast<const uint4 *>(from);
    const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = half_to_float(words[i] & 0xffff);
        to[2 * i + 1] = half_to_float(words[i] >> 16);
    }
}

// part[S][R][N] = input[R][K] * matrix[K][N], each of the S parts over its share of the inputs. A warp has 32 columns of a part; a lane
// 8 of them, for every eighth input.
template <int R, int K, int N, int S> __device__ inline void product(const float *input, const unsigned short *matrix, float *part) {
    constexpr int GROUPS = N / 32, SHARE = K / S;
    static_assert(GROUPS * S <= WARPS && SHARE % 8 == 0 && S * N <= 512, "a part for each warp");
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = warp % GROUPS, split = warp / GROUPS;
    if (split >= S) return;
    const int column = group * 32 + lane % 4 * 8, first = split * SHARE + lane / 4;
    float sums[R][8] = {};
#pragma unroll(R >= 4 ? 4 : 16)
    for (int k = 0; k < SHARE; k += 8) {
        float weights[8];
        eight_halves(matrix + (first + k) * N + column, weights);
#pragma unroll
        for (int r = 0; r < R; r++) {
            const float in = input[r * K + first + k];
#pragma unroll
            for (int c = 0; c < 8; c++) sums[r][c] += in * weights[c];
        }
    }
    // Eight lanes have sums of the same eight columns: each ends with one of them.
    const bool b4 = lane & 16, b3 = lane & 8, b2 = lane & 4;
    const int mine = (b4 ? 4 : 0) + (b3 ? 2 : 0) + (b2 ? 1 : 0);
#pragma unroll
    for (int r = 0; r < R; r++) {
        float four[4], two[2];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float other = __shfl_xor_sync(ALL, b4 ? sums[r][i] : sums[r][4 + i], 16);
            four[i] = (b4 ? sums[r][4 + i] : sums[r][i]) + other;
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float other = __shfl_xor_sync(ALL, b3 ? four[i] : four[2 + i], 8);
            two[i] = (b3 ? four[2 + i] : four[i]) + other;
        }
        const float other = __shfl_xor_sync(ALL, b2 ? two[0] : two[1], 4);
        part[(split * R + r) * N + column + mine] = (b2 ? two[1] : two[0]) + other;
    }
}

// x += the parts of a product, if there are any; h = x, normalized. A warp for each row.
template <int R, int S> __device__ inline void add_and_normalize(Room<R> &room) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp >= R) return;
    float values[4], squares = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int column = lane + 32 * i;
        float value = room.x[warp][column];
#pragma unroll
        for (int split = 0; split < S; split++) value += room.part[(split * R + warp) * WIDTH + column];
        room.x[warp][column] = values[i] = value;
        squares += value * value;
    }
    const float factor = rsqrtf(warp_sum(squares) * (1.0f / WIDTH) + EPSILON);
#pragma unroll
    for (int i = 0; i < 4; i++) room.h[warp][lane + 32 * i] = values[i] * factor;
}

// Attention of `count` rows: h. A warp for each row, head, and part of the keys; a lane for each key, then for each number of a value.
template <int R> __device__ inline void attend(Room<R> &room, const Row *rows, int count, const float *cache, int layer) {
    constexpr int PARTS = 4 * R >= WARPS ? 1 : WARPS / (4 * R), ITEMS = R * HEADS * PARTS;
    const int lane = threadIdx.x % 32;
    for (int item = threadIdx.x / 32; item < ITEMS; item += WARPS) {
        const int r = item / (HEADS * PARTS), head = item / PARTS % HEADS, split = item % PARTS;
        if (r >= count) break;
        const int position = rows[r].position;
        const float *keys = cache + (u64)(rows[r].sequence * LAYERS + layer) * 2 * KEYS;
        const float *values = keys + KEYS + head * HEAD + lane;
        keys += head * HEAD * CONTEXT;
        const float *query = &room.q[r][head * HEAD];
        const float scale = SCORE_SCALE * rsqrtf(warp_sum(query[lane] * query[lane]) + EPSILON);
        const float slope = 1.0f / (1 << (2 + 2 * head));
        float sum = 0, share = 0;
        for (int first = split * 32; first <= position; first += PARTS * 32) {
            float dot = 0, squares = 0;
#pragma unroll
            for (int d = 0; d < HEAD; d++) {
                const float key = keys[d * CONTEXT + first + lane];
                dot += query[d] * key;
                squares += key * key;
            }
            const int distance = position - first - lane;
            const float score = dot * rsqrtf(squares + EPSILON) * scale - distance * slope;
            const float power = distance >= 0 ? __expf(score) : 0.0f;
            share += power;
#pragma unroll
            for (int j = 0; j < 32; j++) {
                // What lies behind the row's own position is zeros or older values, and has no share.
                sum += __shfl_sync(ALL, power, j) * values[(first + j) * WIDTH];
            }
        }
        share = warp_sum(share);
        float *to = room.part + item * (HEAD + 1);
        to[lane] = sum;
        if (lane == 0) to[HEAD] = share;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * WIDTH; i += THREADS) {
        const int r = i / WIDTH, column = i % WIDTH;
        const float *from = room.part + (r * HEADS + column / HEAD) * PARTS * (HEAD + 1);
        float sum = 0, share = 0;
#pragma unroll
        for (int split = 0; split < PARTS; split++) {
            sum += from[split * (HEAD + 1) + column % HEAD];
            share += from[split * (HEAD + 1) + HEAD];
        }
        room.h[r][column] = sum / share;
    }
    __syncthreads();
}

__device__ inline float random_number(u64 seed, u32 place) {
    u64 state = seed + ((u64)place + 1) * 0x9e3779b97f4a7c15ull;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebull;
    return (float)((state ^ (state >> 31)) >> 40) * (1.0f / 16777216.0f);
}

// Chooses the token after a row: a warp, whose lanes have eight logits each.
__device__ inline u32 choose(const float (&logits)[8], const Row &row) {
    const int lane = threadIdx.x % 32;
    float most = logits[0];
    u32 best = lane * 8;
#pragma unroll
    for (int i = 1; i < 8; i++) {
        if (logits[i] > most) most = logits[i], best = lane * 8 + i;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const float other = __shfl_xor_sync(ALL, most, lanes);
        const u32 token = __shfl_xor_sync(ALL, best, lanes);
        if (other > most || (other == most && token < best)) most = other, best = token;
    }
    if (!(row.temperature >= MIN_TEMPERATURE)) return best;
    float powers[8], own = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) own += powers[i] = __expf((logits[i] - most) / row.temperature);
    float before = own;
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        const float other = __shfl_up_sync(ALL, before, lanes);
        if (lane >= lanes) before += other;
    }
    const float limit = random_number(row.seed, row.position) * __shfl_sync(ALL, before, 31);
    u32 token = VOCABULARY;
    float sum = before - own;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum += powers[i];
        if (sum > limit && token == VOCABULARY) token = lane * 8 + i;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const u32 other = __shfl_xor_sync(ALL, token, lanes);
        token = other < token ? other : token;
    }
    // The limit was rounded up to the total.
    return token == VOCABULARY ? best : token;
}

// Computes up to R rows, all the way. They are in shared memory.
template <int R>
__device__ inline void forward(Room<R> &room, const Row *rows, int count, const unsigned short *weights, float *cache, unsigned char *next) {
    for (int i = threadIdx.x; i < R * WIDTH; i += THREADS) {
        const int r = i / WIDTH;
        room.x[r][i % WIDTH] = r < count ? half_to_float(weights[EMBEDDING + rows[r].token * WIDTH + i % WIDTH]) : 0.0f;
        room.h[r][i % WIDTH] = 0;
    }
    __syncthreads();
    add_and_normalize<R, 0>(room);
    __syncthreads();
    for (int layer = 0; layer < LAYERS; layer++) {
        const unsigned short *matrices = weights + FIRST_LAYER + layer * LAYER;
        product<R, WIDTH, 3 * WIDTH, 1>(&room.h[0][0], matrices + QKV, room.part);
        __syncthreads();
        for (int i = threadIdx.x; i < count * 3 * WIDTH; i += THREADS) {
            const int r = i / (3 * WIDTH), column = i % (3 * WIDTH), position = rows[r].position;
            float *keys = cache + (u64)(rows[r].sequence * LAYERS + layer) * 2 * KEYS;
            if (column < WIDTH) room.q[r][column] = room.part[i];
            else if (column < 2 * WIDTH) keys[(column - WIDTH) * CONTEXT + position] = room.part[i];
            else keys[KEYS + position * WIDTH + column - 2 * WIDTH] = room.part[i];
        }
        __syncthreads();
        attend<R>(room, rows, count, cache, layer);
        product<R, WIDTH, WIDTH, 4>(&room.h[0][0], matrices + OUT, room.part);
        __syncthreads();
        add_and_normalize<R, 4>(room);
        __syncthreads();
        product<R, WIDTH, HIDDEN, 1>(&room.h[0][0], matrices + UP, room.part);
        __syncthreads();
        for (int i = threadIdx.x; i < R * HIDDEN; i += THREADS) {
            (&room.hidden[0][0])[i] = room.part[i] > 0 ? room.part[i] : 0.0f;
        }
        __syncthreads();
        product<R, HIDDEN, WIDTH, 4>(&room.hidden[0][0], matrices + DOWN, room.part);
        __syncthreads();
        add_and_normalize<R, 4>(room);
        __syncthreads();
    }
    product<R, WIDTH, VOCABULARY, 2>(&room.h[0][0], weights + UNEMBEDDING, room.part);
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp < count) {
        float logits[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            logits[i] = room.part[warp * VOCABULARY + lane * 8 + i] + room.part[(R + warp) * VOCABULARY + lane * 8 + i];
        }
        const u32 token = choose(logits, rows[warp]);
        if (lane == 0) next[warp] = (unsigned char)token;
    }
    __syncthreads();
}

// `tiles`, `rows` and `next` are pinned memory of the host. Tiles without rows have nothing to do.
extern "C" __global__ void __launch_bounds__(512, 1)
step(const unsigned short *weights, float *cache, const Tile *tiles, const Row *rows, unsigned char *next) {
    __shared__ Room<8> room;
    __shared__ Row own[64];
    const Tile tile = tiles[blockIdx.x];
    for (int i = threadIdx.x; i < (int)tile.rows && i < 64; i += THREADS) own[i] = rows[tile.first + i];
    __syncthreads();
    for (int at = 0; at < (int)tile.rows; at += 8) {
        const int left = tile.rows - at, count = left < 8 ? left : 8;
        unsigned char *to = next + tile.first + at;
        if (count == 1) forward<1>(reinterpret_cast<Room<1> &>(room), own + at, count, weights, cache, to);
        else if (count == 2) forward<2>(reinterpret_cast<Room<2> &>(room), own + at, count, weights, cache, to);
        else if (count <= 4) forward<4>(reinterpret_cast<Room<4> &>(room), own + at, count, weights, cache, to);
        else forward<8>(room, own + at, count, weights, cache, to);
    }
}
