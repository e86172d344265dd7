// SPDX-License-Identifier: GPL-2.0
/*
 * dmabuf_shim: memory regions on dma-bufs for RDMA devices that have none, that is, rxe and siw. For tests in virtual
 * machines: a network card of its own registers GPU memory by dma-buf, and this lets the same calls run without one.
 *
 * The module fills the empty reg_user_mr_dmabuf of every RDMA device. A registration maps the pages behind the dma-buf
 * into the calling process, has the driver register that address as if it were ordinary memory, which pins the pages, and
 * takes the mapping away again.
 *
 * What differs from a card: the region holds pages, not an attachment, so there is no dma_map and no move_notify. The
 * exporter has to offer a kernel mapping and its memory has to consist of pages: udmabuf and the system dma-heap do.
 */
#include <linux/anon_inodes.h>
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/vmalloc.h>
#include <rdma/ib_verbs.h>

/* Puts the pages of a kernel mapping, which starts at the file's private data, under the caller's addresses. */
static int window_mmap(struct file *file, struct vm_area_struct *vma)
{
	void *page_address = file->private_data;
	unsigned long at;
	int err;

	for (at = vma->vm_start; at < vma->vm_end; at += PAGE_SIZE, page_address += PAGE_SIZE) {
		struct page *page = vmalloc_to_page(page_address);

		err = page ? vm_insert_page(vma, at, page) : -EFAULT;
		if (err)
			return err;
	}
	return 0;
}

static const struct file_operations window_fops = { .owner = THIS_MODULE, .mmap = window_mmap };

/* Registers length bytes at start of a kernel mapping, by way of a window in the calling process. */
static struct ib_mr *register_window(struct ib_pd *pd, void *start, u64 length, u64 virt_addr, int access)
{
	u64 in_page = offset_in_page(start), size = PAGE_ALIGN(in_page + length);
	struct file *file;
	unsigned long at;
	struct ib_mr *mr;

	file = anon_inode_getfile("[dmabuf_shim]", &window_fops, start - in_page, O_RDWR);
	if (IS_ERR(file))
		return ERR_CAST(file);
	at = vm_mmap(file, 0, size, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	if (IS_ERR_VALUE(at)) {
		mr = ERR_PTR((long)at);
	} else {
		mr = pd->device->ops.reg_user_mr(pd, at + in_page, length, virt_addr, access, NULL);
		vm_munmap(at, size);
	}
	fput(file);
	return mr;
}

static struct ib_mr *shim_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 virt_addr, int fd,
					     int access, struct uverbs_attr_bundle *attrs)
{
	struct iosys_map map;
	struct dma_buf *buf;
	struct ib_mr *mr;
	int err;

	buf = dma_buf_get(fd);
	if (IS_ERR(buf))
		return ERR_CAST(buf);
	if (!length || offset + length < offset || offset + length > buf->size) {
		mr = ERR_PTR(-EINVAL);
		goto put;
	}
	err = dma_buf_vmap_unlocked(buf, &map);
	if (err) {
		mr = ERR_PTR(err);
		goto put;
	}
	if (map.is_iomem || !is_vmalloc_addr(map.vaddr))
		mr = ERR_PTR(-EOPNOTSUPP);
	else
		mr = register_window(pd, map.vaddr + offset, length, virt_addr, access);
	if (!IS_ERR(mr)) {
		/* For ordinary registrations the caller of the driver does this, for dma-bufs the driver. */
		mr->iova = virt_addr;
		mr->length = length;
	}
	dma_buf_vunmap_unlocked(buf, &map);
put:
	dma_buf_put(buf);
	return mr;
}

static int shim_add(struct ib_device *device)
{
	if (device->ops.reg_user_mr_dmabuf || !device->ops.reg_user_mr)
		return -EOPNOTSUPP; /* which means: no interest in this device */
	device->ops.reg_user_mr_dmabuf = shim_reg_user_mr_dmabuf;
	return 0;
}

static void shim_remove(struct ib_device *device, void *data)
{
	device->ops.reg_user_mr_dmabuf = NULL;
}

static struct ib_client shim_client = {
	.name = "dmabuf_shim",
	.add = shim_add,
	.remove = shim_remove,
};

static int __init shim_init(void)
{
	return ib_register_client(&shim_client);
}

static void __exit shim_exit(void)
{
	ib_unregister_client(&shim_client);
}

module_init(shim_init);
module_exit(shim_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("dma-buf memory regions on software RDMA devices, for tests");
MODULE_IMPORT_NS(DMA_BUF);
