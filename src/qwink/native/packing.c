// Blocks of queries, and the packed keys and values that they read on some sets.
//
// A prompt comes in chunks, and each needs the keys and values of all chunks before. So an instance
// keeps what it packed for the prompt that is under way, and a chunk that continues it packs its
// new tokens only. What is kept belongs to one slot of one cache and to its first `num_tokens`
// tokens. It is dropped when another slot's prompt or an answer's step comes. The operator cannot
// see that the slot was written to from outside, so the caller says whether a chunk continues the
// last one.
//
// Runs may be concurrent: a run takes what is kept out of the instance, so that it is the only one
// to use it, and puts it back afterwards. A run that finds nothing packs everything.
#include "memory.h"
#include "operators.h"

struct packing {
  const uint16_t *key_cache;
  int32_t slot;
  int64_t num_tokens;  // packed
  int64_t num_bytes;   // of `tiles`
  uint8_t *tiles;
};

static void release(struct packing *p) {
  if (p) unmap_pages(p->tiles, p->num_bytes);
  free(p);
}

void drop_packing(const struct kernel *k) { release(atomic_exchange(k->packing, NULL)); }

// The memory that was kept, or other memory if its size is another; NULL if there is none.
static struct packing *reserve(struct packing *kept, int64_t num_bytes) {
  if (kept && kept->num_bytes == num_bytes) return kept;
  release(kept);
  struct packing *p = calloc(1, sizeof *p);
  // Room for all that the slot can hold.
  if (p) p->tiles = map_pages(num_bytes), p->num_bytes = num_bytes;
  if (p && p->tiles) return p;
  free(p);
  return NULL;
}

static void pack_work(const void *data, int64_t start, int64_t stop) {
  const struct job *job = data;
  job->set->attention_pack(job->data, start, stop);
}
static void blocks_work(const void *data, int64_t start, int64_t stop) {
  const struct job *job = data;
  job->set->attention_blocks(job->data, start, stop);
}

static Status *pack_and_attend(const struct kernel *k, KernelContext *context,
                               const struct attention *a, size_t scratch, uint8_t **packed) {
  const struct api *api = k->api;
  const struct job job = {k->set, a};
  const int64_t num_bytes = k->set->pack_bytes(a), room = a->packed ? 0 : num_bytes;
  TRY(output(api, context, scratch, &room, 1, packed));
  if (num_bytes) TRY(run_parts(api, context, pack_work, &job, a->num_sequences * a->num_kv_heads));
  const int64_t num_blocks = a->num_sequences * a->num_heads * attention_num_blocks(a);
  return run_parts(api, context, blocks_work, &job, num_blocks);
}

Status *attend_blocks(const struct kernel *k, KernelContext *context, struct attention *a,
                      int32_t step, size_t scratch) {
  struct packing *kept = atomic_exchange(k->packing, NULL);
  const bool one = a->key_cache && a->num_sequences == 1;
  const bool continues = one && kept && (step & CONTINUES) && kept->slot == a->slots[0] &&
                         kept->key_cache == a->key_cache && kept->num_tokens == past_of(a, 0);
  const bool keep = one && !(step & LAST);
  uint8_t *unused;
  if (one && k->set->attention_pack && (continues || keep)) {
    const int64_t needed = a->max_keys;
    a->max_keys = round_up(a->capacity, 32);
    const int64_t num_bytes = k->set->pack_bytes(a);
    const bool same = continues && kept->num_bytes == num_bytes;
    kept = reserve(kept, num_bytes);
    if (kept) {
      a->packed = kept->tiles;
      a->already_packed = same ? kept->num_tokens : 0;
    } else {
      a->max_keys = needed;  // no memory to keep it: use scratch
    }
  } else {
    release(kept);
    kept = NULL;
  }
  Status *status = pack_and_attend(k, context, a, scratch, a->packed ? &unused : &a->packed);
  if (!kept) return status;
  if (status || !keep) return release(kept), status;
  kept->key_cache = a->key_cache;
  kept->slot = a->slots[0];
  kept->num_tokens = num_keys_of(a, 0);
  release(atomic_exchange(k->packing, kept));
  return NULL;
}
