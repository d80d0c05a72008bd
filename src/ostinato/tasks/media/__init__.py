"""What recipes for images and sound share: rows that hold files, read when they are needed.

    media_recipe.py   the base of these recipes            media_arguments.py  their flags
    media_files.py    a value of a row as a file           folders.py          rows from folders of files
    media_reader.py   rows from files, folders, datasets   media_rows.py       a data set that reads rows on access
    decoded_cache.py  decoded files, kept on the disk      gallery.py          pictures for the report
    images.py         decoding of images                   image_processors.py pixels as a model takes them
    image_recipe.py   the base of recipes for images       image_augmentation.py  random changes of images
    audio.py          decoding of sound                    resampler.py        another sampling rate
    audio_recipe.py   the base of recipes for sound        audio_augmentation.py  random changes of recordings
    speech_recipe.py  the base of recipes that transcribe  audio_collators.py  batches of recordings
    label_recipe.py   the base of recipes that choose a label
    audio_pictures.py waveforms and spectrograms           frame_lengths.py    frames of a model's convolutions
    frame_masks.py    masked frames of speech
    feature_extractors.py  what makes a model's input of samples

Libraries that decode (pillow, soundfile) are optional and come with the extra `media`.
"""
