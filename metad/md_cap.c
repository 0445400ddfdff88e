#include "metad/md_cap.h"
#include "common/gx_num.h"
#include "common/gx_secret.h"
#include <openssl/evp.h>

#define WORDS 6u /* kind and five numbers: three blocks, always */
#define MESSAGE_BYTES (WORDS * sizeof(uint64_t))
#define BLOCK_BYTES 16u

/* The kind is the first word, so no two kinds ever have a message in common. */
enum cap_kind { CAP_INODE = 1, CAP_TOKEN = 2, CAP_RECEIPT = 3 };

struct md_cap {
	EVP_CIPHER_CTX *cipher;          /* keyed once; OpenSSL wipes the key when it is freed */
	unsigned char last[BLOCK_BYTES]; /* that it gave, and goes on from */
};

int md_cap_new(const unsigned char secret[MD_CAP_SECRET_BYTES], struct md_cap **ret_cap)
{
	struct md_cap *cap = calloc(1, sizeof(*cap));

	if (cap == NULL)
		return -ENOMEM;
	cap->cipher = EVP_CIPHER_CTX_new();
	if (cap->cipher == NULL) {
		md_cap_free(cap);
		return -ENOMEM;
	}
	if (EVP_EncryptInit_ex(cap->cipher, EVP_aes_128_cbc(), NULL, secret, cap->last) != 1 ||
	    EVP_CIPHER_CTX_set_padding(cap->cipher, 0) != 1) {
		md_cap_free(cap);
		return -EIO;
	}
	*ret_cap = cap;
	return 0;
}

void md_cap_free(struct md_cap *cap)
{
	if (cap == NULL)
		return;
	EVP_CIPHER_CTX_free(cap->cipher);
	gx_wipe(cap->last, sizeof(cap->last));
	free(cap);
}

static uint64_t mac(struct md_cap *cap, const uint64_t words[WORDS])
{
	unsigned char bytes[MESSAGE_BYTES];
	uint64_t value;
	int done = 0;

	for (size_t i = 0; i < WORDS; i++)
		gx_put_le64(bytes + i * sizeof(uint64_t), words[i]);
	/*
	 * The cipher adds its last block to the first of ours. Adding it here as well is a start
	 * from zero, for a fifth of the time that telling OpenSSL to start again takes.
	 */
	for (size_t i = 0; i < BLOCK_BYTES; i++)
		bytes[i] ^= cap->last[i];
	/* Cannot fail once the cipher is keyed: whole blocks, and no memory is needed. */
	gx_assert(EVP_EncryptUpdate(cap->cipher, bytes, &done, bytes, (int)sizeof(bytes)) == 1);
	gx_assert(done == (int)sizeof(bytes));
	memcpy(cap->last, bytes + MESSAGE_BYTES - BLOCK_BYTES, BLOCK_BYTES);
	value = gx_get_le64(cap->last);
	/* The blocks before the last would help to forge others. */
	gx_wipe(bytes, sizeof(bytes));
	return value != 0 ? value : 1;
}

uint64_t md_cap_inode(struct md_cap *cap, uint64_t ino)
{
	return mac(cap, (const uint64_t[WORDS]){CAP_INODE, ino});
}

uint64_t md_cap_token(struct md_cap *cap, uint64_t session, uint64_t handle, uint64_t ino,
		      uint32_t flags)
{
	return mac(cap, (const uint64_t[WORDS]){CAP_TOKEN, session, handle, ino, flags});
}

uint64_t md_cap_receipt(struct md_cap *cap, uint64_t session, uint64_t seq, uint64_t check,
			uint64_t new_ino, int64_t time_ns)
{
	return mac(cap, (const uint64_t[WORDS]){CAP_RECEIPT, session, seq, check, new_ino,
						(uint64_t)time_ns});
}
