from normkit.optional import let_torchvision_load

let_torchvision_load()
