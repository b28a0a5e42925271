/* The kernels of whole tensors written by hand for the processor, as a limit for `roofline.py`. Same shapes, lists and
   layouts as mimdsim/numerics/fused; sums may be reordered and products contracted, so results agree to rounding. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define WIDTH 64
#ifdef __AVX512F__
#define BYTES 64
#else /* compilers take vectors wider than registers apart through memory */
#define BYTES 32
#endif
#define LANES (BYTES / 4)
#define VECTORS (WIDTH / LANES)
typedef float vec __attribute__((vector_size(BYTES), aligned(BYTES)));
typedef float vec_at __attribute__((vector_size(BYTES), aligned(4)));
typedef int32_t mask __attribute__((vector_size(BYTES)));
#define LOAD(p) (*(const vec_at *)(p))
#define STORE(p, x) (*(vec_at *)(p) = (x))

static inline uint64_t above(const float *v, float limit) {
    uint64_t bits = 0;
#ifdef __AVX512F__
    for (int k = 0; k < 4; k++)
        bits |= (uint64_t)_mm512_cmp_ps_mask(_mm512_loadu_ps(v + 16 * k), _mm512_set1_ps(limit), _CMP_GT_OQ) << (16 * k);
#else
    for (int k = 0; k < 8; k++)
        bits |= (uint64_t)(unsigned)_mm256_movemask_ps(
                    _mm256_cmp_ps(_mm256_loadu_ps(v + 8 * k), _mm256_set1_ps(limit), _CMP_GT_OQ)) << (8 * k);
#endif
    return bits;
}

static inline void sums(const float *rows, const int32_t *ids, int64_t first, int64_t last, vec *s) {
    for (int n = 0; n < VECTORS; n++) s[n] = (vec){0};
    for (int64_t k = first; k < last; k++) {
        const float *row = rows + (int64_t)ids[k] * WIDTH;
        for (int n = 0; n < VECTORS; n++) s[n] += LOAD(row + LANES * n);
    }
}

/* one block through all timesteps; returns how many entries it lists */
int64_t forward_block(int64_t places, int64_t batch, int64_t lag, const float *w, int64_t real, const int64_t *starts,
                      const int32_t *trues, const int32_t *ids, const float *constants, float *v, int32_t *entry_place,
                      uint8_t *entry_lane, float *entry_value) {
    const float decay = constants[0], scale = constants[1], threshold = constants[2];
    const float low = constants[3] < threshold ? constants[3] : threshold;
    int64_t found = 0;
    memset(v, 0, batch * WIDTH * sizeof(float));
    for (int64_t place = 0, b = 0; place < places; place++, b = b + 1 == batch ? 0 : b + 1) {
        int64_t before = place - lag, begin = before >= 0 ? starts[before] : 0;
        vec s[VECTORS];
        sums(w, ids, begin, before >= 0 ? begin + trues[before] : 0, s);
        float *state = v + b * WIDTH;
        for (int n = 0; n < VECTORS; n++) {
            vec old = LOAD(state + LANES * n), kept = old * decay;
            STORE(state + LANES * n, (vec)((mask)kept & (old <= threshold)) + scale * s[n]);
        }
        for (uint64_t bits = above(state, low); bits; bits &= bits - 1) {
            int n = __builtin_ctzll(bits);
            if (n >= real) break;
            entry_place[found] = (int32_t)place;
            entry_lane[found] = (uint8_t)(n + WIDTH * (state[n] > threshold));
            entry_value[found++] = state[n];
        }
    }
    return found;
}

void adjoint_block(int64_t timesteps, int64_t batch, float decay, float scale, const int32_t *entry_place,
                   const uint8_t *entry_lane, const float *value, const int64_t *slot, const int64_t *ends,
                   const float *g, float *q) {
    const int64_t row = batch * WIDTH;
    for (int64_t t = timesteps - 1; t >= 0; t--) {
        for (int64_t n = 0; n < row; n += LANES) STORE(q + t * row + n, decay * LOAD(q + (t + 1) * row + n));
        for (int64_t e = t ? ends[t - 1] : 0; e < ends[t]; e++) {
            float *at = q + (int64_t)entry_place[e] * WIDTH + entry_lane[e] % WIDTH;
            float kept = entry_lane[e] >= WIDTH ? 0 : *at;
            *at = slot[e] >= 0 ? kept + scale * (g[slot[e]] * value[e]) : kept;
        }
    }
}

void weight_gradient(int64_t inputs, const int64_t *columns, const int32_t *rows, const float *q, float *dw) {
    for (int64_t i = 0; i < inputs; i++) {
        vec s[VECTORS];
        sums(q, rows, columns[i], columns[i + 1], s);
        for (int n = 0; n < VECTORS; n++) STORE(dw + i * WIDTH + LANES * n, s[n]);
    }
}

static inline __m256 product(const float *row, const vec *q) {
    vec s = LOAD(row) * q[0];
    for (int n = 1; n < VECTORS; n++) s += LOAD(row + LANES * n) * q[n];
#ifdef __AVX512F__
    __m256 half[2];
    memcpy(half, &s, sizeof s);
    return _mm256_add_ps(half[0], half[1]);
#else
    return (__m256)s;
#endif
}

void input_gradient(int64_t places, int64_t lag, const float *w, const int32_t *ids, const int64_t *starts,
                    const float *q, float *g) {
    for (int64_t place = lag; place < places; place++) {
        vec factor[VECTORS];
        for (int n = 0; n < VECTORS; n++) factor[n] = LOAD(q + place * WIDTH + LANES * n);
        int64_t k = starts[place - lag], last = starts[place - lag + 1];
        for (; k + 4 <= last; k += 4) {
            __m256 s[4];
            for (int j = 0; j < 4; j++) s[j] = product(w + (int64_t)ids[k + j] * WIDTH, factor);
            __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(s[0], s[1]), _mm256_hadd_ps(s[2], s[3]));
            __m128 made = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
            _mm_storeu_ps(g + k, _mm_add_ps(_mm_loadu_ps(g + k), made));
        }
        for (; k < last; k++) {
            __m256 s = product(w + (int64_t)ids[k] * WIDTH, factor);
            __m128 h = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
            h = _mm_add_ps(h, _mm_movehl_ps(h, h));
            g[k] += _mm_cvtss_f32(_mm_add_ss(h, _mm_shuffle_ps(h, h, 1)));
        }
    }
}

void update(int64_t count, float rate, const float *gradient, float *w) {
    for (int64_t n = 0; n < count; n++) w[n] -= rate * gradient[n];
}

/* what memory gives: a + b into c */
void triad(int64_t count, const float *a, const float *b, float *c) {
    for (int64_t n = 0; n < count; n++) c[n] = a[n] + 0.5f * b[n];
}
