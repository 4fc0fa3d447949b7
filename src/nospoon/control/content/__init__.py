"""Files of users and of the network: uploads, downloads, images, media, certificates."""
