"""Words of Keras and PyTorch, and what minidl has in their place. Each entry completes an error: "got 'mse'; ..."."""

from __future__ import annotations

Words = dict[str, str]

# Keys are compared as `hints.plain` writes them: in lower case, without underscores and a final "loss".

ARGUMENTS: Words = {
    # layers
    "activation": "use a layer of its own after this one, such as ReLU()",
    "strides": "use stride=",
    "dilationrate": "use dilation=",
    "bias": "use use_bias=",
    "inchannels": "use the number of outputs only: that of the inputs is inferred",
    "infeatures": "use the number of outputs only: that of the inputs is inferred",
    "inputdim": "use Sequential(layers, input_shape=...)",
    "inputshape": "use Sequential(layers, input_shape=...)",
    "batchinputshape": "use Sequential(layers, input_shape=...)",
    "outchannels": "use filters=",
    "outfeatures": "use units=",
    "numfeatures": "leave it out: the channels are inferred",
    "normalizedshape": "leave it out: the shape is inferred",
    "numgroups": "use groups=",
    "numchannels": "leave it out: the channels are inferred",
    "epsilon": "use eps=",
    "center": "use affine=",
    "scalefactor": "use scale=",
    "dataformat": "use arrays (n, channels, height, width)",
    "paddingmode": "use padding=, an int, a pair, 'same' or 'valid': the border is zero",
    "kernelregularizer": "use weight_decay= of the optimizer",
    "weightinitializer": "use kernel_initializer=",
    "init": "use kernel_initializer=",
    "inplace": "leave it out: memory is planned for the whole model",
    "p": "use rate=",
    "trainable": "use layer.trainable = False",
    "device": "leave it out: minidl computes on CPUs",
    # optimizers
    "learningrate": "use lr=",
    "params": "use no parameters: Trainer passes those of the model",
    "parameters": "use no parameters: Trainer passes those of the model",
    "beta1": "use betas=(0.9, 0.999)",
    "beta2": "use betas=(0.9, 0.999)",
    "rho": "use alpha=",
    "decay": "use a schedule as lr=, such as minidl.schedules.Exponential(0.1, gamma)",
    "lrdecay": "use a schedule as lr=, such as minidl.schedules.Exponential(0.1, gamma)",
    "clipnorm": "use Trainer(..., clip_norm=...)",
    "globalclipnorm": "use Trainer(..., clip_norm=...)",
    "clipvalue": "use Trainer(..., clip_value=...)",
    # callbacks
    "mode": "use lower_is_better=True for mode='min', False for mode='max'",
    "restorebestweights": "leave it out: the weights of the best epoch are always restored",
    "savebestonly": "use monitor=: it saves only after epochs with a new best value",
    "saveweightsonly": "leave it out: a checkpoint has the whole trainer; model.save writes the weights",
    "filepath": "use path=",
    "savefreq": "use every_n_steps=",
    "basefolder": "use folder=",
    "tmax": "use total_steps=",
    "etamin": "use min_lr=",
    # Trainer, fit, evaluate and predict
    "metrics": "use Trainer(model, loss, optimizer, metrics=...)",
    "optimizer": "use Trainer(model, loss, optimizer)",
    "batchsize": "leave it out: X is read in parts that fit into little memory",
    "verbose": "leave it out: only fit prints",
    "criterion": "use loss=",
    "lossfn": "use loss=",
    "x": "use X=",
    "initialepoch": "leave it out: Trainer.resume continues where a checkpoint stands",
    "validationfreq": "leave it out: fit validates after each epoch",
    "validationsteps": "use validation_data=(X, y) of the rows that you want",
    "validationbatchsize": "leave it out: results do not depend on it",
    "workers": "use num_threads= of Trainer",
    "numworkers": "use num_threads= of Trainer",
    "sampleweights": "use sample_weight=",
    "classweights": "use class_weight=",
    "nepochs": "use epochs=",
    "numepochs": "use epochs=",
    "training": "use model.forward(X, training=True)",
}

MODEL: Words = {
    "call": "use model.predict(X), or model.forward(X, training=True) for a backward by hand",
    "compile": "use Trainer(model, loss, optimizer, metrics)",
    "fit": "use Trainer(model, loss, optimizer).fit(X, y)",
    "evaluate": "use Trainer(model, loss, optimizer).evaluate(X, y)",
    "train": "use Trainer(model, loss, optimizer).fit(X, y); predict always computes as in inference",
    "eval": "use model.predict(X), which always computes as in inference",
    "trainonbatch": "use Trainer(model, loss, optimizer).train_batch(X, y)",
    "add": "use Sequential([layer, layer, ...]), the list of all layers",
    "append": "use Sequential([layer, layer, ...]), the list of all layers",
    "to": "leave it out: minidl computes on CPUs; the dtype is Sequential(..., dtype='float64')",
    "cuda": "leave it out: minidl computes on CPUs",
    "cpu": "leave it out: minidl computes on CPUs",
    "float": "use Sequential(..., dtype='float32')",
    "double": "use Sequential(..., dtype='float64')",
    "parameters": "use model.params, a dict; Trainer passes it to the optimizer, which takes only numbers: SGD(0.1)",
    "namedparameters": "use model.params.items()",
    "weights": "use model.params, a dict of Param(value, grad)",
    "trainableweights": "use model.params, a dict of Param(value, grad)",
    "trainablevariables": "use model.params, a dict of Param(value, grad)",
    "getweights": "use model.state_dict()",
    "setweights": "use model.load_state_dict(state)",
    "loadweights": "use Sequential.load(path), or model.load_state_dict(state)",
    "saveweights": "use model.save(path)",
    "zerograd": "leave it out: backward overwrites every gradient",
    "countparams": "use model.summary()",
    "getlayer": "use model.layers[i] or model[i]",
    "modules": "use model.layers",
    "children": "use model.layers",
    "requiresgrad": "use model.trainable = False",
    "numparameters": "use model.summary()",
    "predictclasses": "use model.predict(X).argmax(axis=1)",
}

OPTIMIZER: Words = {
    "zerograd": "leave it out: backward overwrites every gradient",
    "paramgroups": "use optimizer.lr, a number that may be set, and layer.lr_mult",
    "learningrate": "use optimizer.lr",
    "minimize": "use Trainer(model, loss, optimizer).fit(X, y)",
    "applygradients": "use optimizer.step(model.params, lr)",
}

TRAINER: Words = {
    "compile": "use the arguments of Trainer(model, loss, optimizer, metrics)",
    "train": "use trainer.fit(X, y)",
    "test": "use trainer.evaluate(X, y)",
    "validate": "use trainer.evaluate(X, y)",
    "trainonbatch": "use trainer.train_batch(X, y)",
    "save": "use trainer.save_checkpoint(path), or trainer.model.save(path) for the model alone",
    "load": "use Trainer.resume(path)",
    "summary": "use trainer.model.summary()",
    "zerograd": "leave it out: backward overwrites every gradient",
}

HISTORY: Words = {
    "history": "use the object itself, a dict of lists: history['loss']",
    "epoch": "use history['epoch']",
}

LOSSES: Words = {
    "mse": "use 'mean_squared_error'",
    "l2": "use 'mean_squared_error'",
    "squared": "use 'mean_squared_error'",
    "mae": "use 'mean_absolute_error'",
    "l1": "use 'mean_absolute_error'",
    "absoluteerror": "use 'mean_absolute_error'",
    "smoothl1": "use 'huber'",
    "bce": "use 'binary_cross_entropy', on scores: leave out a last Sigmoid",
    "bcewithlogits": "use 'binary_cross_entropy'",
    "log": "use 'softmax_cross_entropy', on scores: leave out a last Softmax",
    "crossentropy": "use 'softmax_cross_entropy', on scores: leave out a last Softmax",
    "nll": "use 'softmax_cross_entropy', on scores: leave out a last Softmax",
    "softmax": "use 'softmax_cross_entropy'",
    "sparsecategoricalcrossentropy": "use 'softmax_cross_entropy', on scores: leave out a last Softmax",
    "categoricalcrossentropy": (
        "use 'softmax_cross_entropy', on scores and labels: leave out a last Softmax; of one-hot rows, y.argmax(axis=1)"
    ),
    "poissonnll": "use 'poisson'",
}

METRICS: Words = {
    "acc": "use 'accuracy'",
    "categoricalaccuracy": "use 'accuracy'",
    "sparsecategoricalaccuracy": "use 'accuracy'",
    "topkcategoricalaccuracy": "use TopKAccuracy(k) of minidl.metrics",
    "f1score": "use 'f1' for two classes, 'f1_macro' for more",
    "recallscore": "use 'recall' for two classes, 'recall_macro' for more",
    "precisionscore": "use 'precision' for two classes, 'precision_macro' for more",
    "meanabsoluteerror": "use 'mae'",
    "meansquarederror": "use 'mse'",
    "rootmeansquarederror": "use 'rmse'",
    "r2score": "use 'r2'",
    "auc": "use the function sklearn.metrics.roc_auc_score",
    "rocauc": "use the function sklearn.metrics.roc_auc_score",
    "rocaucscore": "use the function sklearn.metrics.roc_auc_score",
}

MONITORS: Words = {"acc": "use 'accuracy'", "valacc": "use 'val_accuracy'"}

OPTIMIZERS: Words = {
    "sgd": "use SGD(0.1) of minidl.optimizers",
    "momentum": "use SGD(0.1, momentum=0.9) of minidl.optimizers",
    "adam": "use Adam(0.001) of minidl.optimizers",
    "adamw": "use AdamW(0.001) of minidl.optimizers",
    "rmsprop": "use RMSprop(0.01) of minidl.optimizers",
    "adagrad": "use Adagrad(0.01) of minidl.optimizers",
}

SCHEDULES: Words = {
    "steplr": "use minidl.schedules.Step",
    "multisteplr": "use minidl.schedules.MultiStep",
    "exponentiallr": "use minidl.schedules.Exponential",
    "exponentialdecay": "use minidl.schedules.Exponential",
    "polynomiallr": "use minidl.schedules.Polynomial",
    "cosineannealinglr": "use minidl.schedules.Cosine",
    "cosinedecay": "use minidl.schedules.Cosine",
    "onecyclelr": "use minidl.schedules.OneCycle",
    "reducelronplateau": "use minidl.callbacks.ReduceLROnPlateau",
    "learningratescheduler": "use a schedule of minidl.schedules as the optimizer's lr",
}

LAYERS: Words = {
    "linear": "use Dense(units)",
    "fullyconnected": "use Dense(units)",
    "convolution2d": "use Conv2D(filters, kernel_size)",
    "conv2dtranspose": "use ConvTranspose2D(filters, kernel_size)",
    "separableconv2d": "use DepthwiseConv2D(kernel_size) and Conv2D(filters, 1)",
    "maxpooling2d": "use MaxPool2D(pool_size)",
    "averagepooling2d": "use AvgPool2D(pool_size)",
    "averagepool2d": "use AvgPool2D(pool_size)",
    "globalaveragepooling2d": "use GlobalAvgPool2D()",
    "globalaveragepool2d": "use GlobalAvgPool2D()",
    "globalmaxpooling2d": "use GlobalMaxPool2D()",
    "batchnormalization": "use BatchNorm2D() for images, BatchNorm1D() for vectors",
    "batchnorm": "use BatchNorm2D() for images, BatchNorm1D() for vectors",
    "groupnormalization": "use GroupNorm(groups)",
    "layernormalization": "use LayerNorm()",
    "upsampling2d": "use Upsample2D(scale)",
    "upsamplingnearest2d": "use Upsample2D(scale)",
    "zeropadding2d": "use Pad2D(padding)",
    "zeropad2d": "use Pad2D(padding)",
    "activation": "use ReLU(), Tanh() or another layer of minidl.layers",
    "swish": "use SiLU()",
    "rescaling": "use Rescale(scale)",
    "normalization": "use Normalize.of(X)",
    "input": "use Sequential(layers, input_shape=...)",
    "inputlayer": "use Sequential(layers, input_shape=...)",
    "add": "use Residual(*layers), or Parallel(first, second, join='add')",
    "concatenate": "use Parallel(first, second, join='concat')",
    "identity": "use Residual or Parallel, which have it built in",
    "module": "use minidl.Layer",
    "sequential": "use minidl.Sequential",
}

CALLBACKS: Words = {
    "modelcheckpoint": "use Checkpoint(path)",
    "learningratescheduler": "use a schedule of minidl.schedules as the optimizer's lr",
    "lrscheduler": "use a schedule of minidl.schedules as the optimizer's lr",
    "callback": "use any object with hooks, such as on_epoch_end",
    "terminateonnan": "leave it out: fit raises FloatingPointError before such a step",
}

PACKAGE: Words = {
    "nn": "use minidl.layers",
    "optim": "use minidl.optimizers",
    "keras": "use minidl.Sequential and minidl.layers",
    "model": "use minidl.Sequential",
    "models": "use minidl.Sequential",
    "functional": "use minidl.layers and minidl.losses",
    "tensor": "use a NumPy array",
    "loadmodel": "use minidl.Sequential.load(path)",
    "load": "use minidl.Sequential.load(path)",
    "save": "use model.save(path)",
    "manualseed": "use seed= of Sequential and Trainer",
}
